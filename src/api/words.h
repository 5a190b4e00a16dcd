// Errors at the border of the C++ interface: they leave it in its own words, and nothing else does.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include "base/error.h"

namespace plimsoll::engine {

// The parts below the interface are shared with the program and name its flags. Here `--budget 48MiB` becomes
// `options.budget = "48MiB"`, and a remedy that needs a flag which the interface has no option for is left out.
Error in_api_words(Error error);

// The result of `call`, with its error in the interface's words; an exception becomes an error.
template <typename Call>
auto at_border(Call call) -> decltype(call()) {
  try {
    auto result = call();
    if (!result) return fail(in_api_words(std::move(result).error()));
    return result;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "the system gave no memory");
  } catch (const std::exception& e) {
    return fail(Error{ErrorCode::kInternal, e.what(), {"this is a bug"}, {"report it with the program that shows it"}});
  }
}

}  // namespace plimsoll::engine
