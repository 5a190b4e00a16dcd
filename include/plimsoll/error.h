/// @file
/// Errors as values. An error that a caller can cause is returned as an Error inside a Result. It is not thrown or
/// printed. An error has one line that says what is wrong, then facts, then remedies. Each code has a page in
/// docs/errors/.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)
/// The public C++ interface of Plimsoll.
namespace plimsoll {

/// What went wrong. The hundreds digit of a code is the exit code of the program.
enum class ErrorCode : int {
  kInternal = 101,                    ///< a bug in Plimsoll
  kUsage = 201,                       ///< a flag or an argument is not valid
  kFileUnreadable = 202,              ///< a file cannot be read
  kNotAKerasFile = 203,               ///< this is not a .keras file
  kBadConfig = 204,                   ///< the configuration is damaged
  kUnsupported = 205,                 ///< the model uses features that Plimsoll does not support yet
  kWeightMissing = 206,               ///< a weight is missing from the file
  kWeightShape = 207,                 ///< a weight has another shape than the model says
  kNotCompiled = 208,                 ///< the model was never compiled
  kUnknownInputShape = 209,           ///< an input has no size
  kBadGeometry = 210,                 ///< shapes do not fit together
  kBadPlan = 211,                     ///< the plan file cannot be used
  kBadCheckpoint = 212,               ///< the checkpoint cannot be used
  kBadWeightsFile = 213,              ///< the weights file is damaged
  kCheckpointInUse = 214,             ///< the checkpoint folder or the log belongs to another run
  kDoesNotFit = 301,                  ///< the model does not fit the budget
  kBatchNormForbidsMicroBatch = 302,  ///< BatchNormalization forbids micro-batches
  kOverheadAboveBound = 303,          ///< the overhead is larger than its bound
  kPeakAboveBudget = 304,             ///< the process held more than its budget
  kBadDataFile = 401,                 ///< a data file is damaged or of an unknown kind
  kDataShape = 402,                   ///< the data have another shape than the model takes
  kDataNotFinite = 403,               ///< the data hold NaN or infinity
  kLabelOutOfRange = 404,             ///< a label is outside the classes of the model
  kDataEmpty = 405,                   ///< there are no samples
  kDataLengths = 406,                 ///< arrays of one data set differ in length
  kInterrupted = 501,                 ///< interrupted, state saved
  kWriteFailed = 601,                 ///< writing failed
  kNotWritable = 602,                 ///< a file cannot be created
  kLibraryMissing = 603,              ///< a library is missing
  kOutOfMemory = 604,                 ///< the machine does not have enough memory
  kDeviceLost = 605,                  ///< the device failed
  kNotSaved = 701,                    ///< interrupted, not saved
};

/// What went wrong, as values and as text.
struct Error {
  ErrorCode code = ErrorCode::kInternal;  ///< what kind of error this is
  std::string what;                       ///< one line, with the values in it
  std::vector<std::string> facts;         ///< one line each
  std::vector<std::string> remedies;      ///< actions that may help, most helpful first

  /// Adds a fact.
  Error& fact(std::string text) {
    facts.push_back(std::move(text));
    return *this;
  }
  /// Adds a remedy at the end of the list.
  Error& remedy(std::string text) {
    remedies.push_back(std::move(text));
    return *this;
  }
};

/// Returns the error as the program prints it. The text ends with a newline.
std::string to_text(const Error& error);

/// A value, or the error that prevented it.
template <typename T>
using Result = tl::expected<T, Error>;
/// Success, or the error that prevented it.
using Status = Result<void>;

/// Makes an error to return from a function whose type is a Result.
inline tl::unexpected<Error> fail(ErrorCode code, std::string what) {
  return tl::make_unexpected(Error{code, std::move(what), {}, {}});
}
/// Makes an error with facts or remedies to return from a function whose type is a Result.
inline tl::unexpected<Error> fail(Error error) {
  return tl::make_unexpected(std::move(error));
}

/// Returns the value of a result. Throws std::runtime_error with the text of to_text() if the result is an error.
template <typename T>
T require(Result<T> result) {
  if (!result) throw std::runtime_error(to_text(result.error()));
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

/// Returns the name of a code in messages and docs, such as "P301".
std::string code_name(ErrorCode code);
/// Returns the program's exit code for an error code, such as 3 for kDoesNotFit.
int exit_code(ErrorCode code);
/// Returns all codes in the order of their numbers.
const std::vector<ErrorCode>& all_error_codes();

}  // namespace plimsoll
#pragma GCC visibility pop

/// @cond
#define PLIMSOLL_CONCAT_(a, b) a##b
#define PLIMSOLL_CONCAT(a, b) PLIMSOLL_CONCAT_(a, b)
/// @endcond

// Errors are moved: if a copy threw an exception, tl::expected would end the program.
/// Returns the error of `expression` from the calling function, if there is one.
#define PLIMSOLL_TRY(expression)                                                                         \
  do {                                                                                                   \
    if (auto&& status_ = (expression); !status_) return tl::make_unexpected(std::move(status_).error()); \
  } while (false)
/// Declares `declaration` with the value of `expression`, or returns its error.
#define PLIMSOLL_ASSIGN(declaration, expression) \
  PLIMSOLL_ASSIGN_(PLIMSOLL_CONCAT(result_, __LINE__), declaration, expression)
/// @cond
#define PLIMSOLL_ASSIGN_(result, declaration, expression)             \
  auto result = (expression);                                         \
  if (!result) return tl::make_unexpected(std::move(result).error()); \
  declaration = std::move(*result)
/// @endcond
