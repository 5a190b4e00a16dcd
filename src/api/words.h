// Converts errors at the border of the C++ interface. Messages name options instead of flags, and no exception leaves
// the interface.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include "base/error.h"

namespace plimsoll::engine {

// The layers below the interface are shared with the program, so their errors name its flags. This function replaces
// `--budget 48MiB` with `options.budget = "48MiB"`. It drops a remedy if the interface has no option for its flag.
Error in_api_words(Error error);

// Returns the result of `call`. Its error is converted by in_api_words(), and an exception becomes an error.
template <typename Call>
auto at_border(Call call) -> decltype(call()) {
  try {
    auto result = call();
    if (!result) return fail(in_api_words(std::move(result).error()));
    return result;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "the system is out of memory");
  } catch (const std::exception& e) {
    return fail(Error{ErrorCode::kInternal, e.what(), {"this is a bug"}, {"report it with the program that shows it"}});
  }
}

}  // namespace plimsoll::engine
