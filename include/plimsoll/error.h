// What a user can cause comes back as an Error; what only we can cause is an assert.
// An error is one line of what, indented facts, then what to do. Its code has a page in docs/errors/.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>
#include <vector>

namespace plimsoll {

// The hundreds digit of a code is the exit code of the program.
enum class ErrorCode : int {
  kInternal = 101,
  kUsage = 201,
  kFileUnreadable = 202,
  kNotAKerasFile = 203,
  kBadConfig = 204,
  kUnsupported = 205,
  kWeightMissing = 206,
  kWeightShape = 207,
  kNotCompiled = 208,
  kUnknownInputShape = 209,
  kBadGeometry = 210,
  kBadPlan = 211,
  kBadCheckpoint = 212,
  kBadWeightsFile = 213,
  kCheckpointInUse = 214,
  kDoesNotFit = 301,
  kBatchNormForbidsMicroBatch = 302,
  kOverheadAboveBound = 303,
  kPeakAboveBudget = 304,
  kBadDataFile = 401,
  kDataShape = 402,
  kDataNotFinite = 403,
  kLabelOutOfRange = 404,
  kDataEmpty = 405,
  kDataLengths = 406,
  kInterrupted = 501,
  kWriteFailed = 601,
  kNotWritable = 602,
  kLibraryMissing = 603,
  kOutOfMemory = 604,
  kDeviceLost = 605,
  kNotSaved = 701,
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string what;                   // one line, with the values in it
  std::vector<std::string> facts;     // each one line
  std::vector<std::string> remedies;  // what to do, most helpful first

  Error& fact(std::string text) {
    facts.push_back(std::move(text));
    return *this;
  }
  Error& remedy(std::string text) {
    remedies.push_back(std::move(text));
    return *this;
  }
};

std::string to_text(const Error& error);  // as a terminal shows it, ending in a newline

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline tl::unexpected<Error> fail(ErrorCode code, std::string what) {
  return tl::make_unexpected(Error{code, std::move(what), {}, {}});
}
inline tl::unexpected<Error> fail(Error error) {
  return tl::make_unexpected(std::move(error));
}

// The value of a result, or an exception that says what to_text() says: for programs that have nothing better to do.
template <typename T>
T require(Result<T> result) {
  if (!result) throw std::runtime_error(to_text(result.error()));
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

std::string code_name(ErrorCode code);  // "P301"
int exit_code(ErrorCode code);          // 3
const std::vector<ErrorCode>& all_error_codes();

}  // namespace plimsoll

#define PLIMSOLL_CONCAT_(a, b) a##b
#define PLIMSOLL_CONCAT(a, b) PLIMSOLL_CONCAT_(a, b)
// Returns the error of `expression`, if it has one. Nothing is copied: tl::expected takes a copy that throws for the
// end of the program.
#define PLIMSOLL_TRY(expression)                                                                         \
  do {                                                                                                   \
    if (auto&& status_ = (expression); !status_) return tl::make_unexpected(std::move(status_).error()); \
  } while (false)
// Declares `declaration` with the value of `expression`, or returns its error.
#define PLIMSOLL_ASSIGN(declaration, expression) \
  PLIMSOLL_ASSIGN_(PLIMSOLL_CONCAT(result_, __LINE__), declaration, expression)
#define PLIMSOLL_ASSIGN_(result, declaration, expression)             \
  auto result = (expression);                                         \
  if (!result) return tl::make_unexpected(std::move(result).error()); \
  declaration = std::move(*result)
