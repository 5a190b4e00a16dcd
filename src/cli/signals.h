// Signal handling. The first SIGINT, SIGTERM or SIGHUP asks the command to save and to end with exit code 5. A second
// signal ends the process at once with exit code 7 and a message that says what is lost, unless everything is already
// saved. If SIGHUP was ignored at the start (nohup), it stays ignored.
//
// Some senders signal a process and its group, or send SIGINT and SIGTERM together. So a signal within
// kSameRequestMilliseconds of the first one counts as the same request.
#pragma once

#include <string>

#include "base/error.h"

namespace plimsoll::engine {

inline constexpr long kSameRequestMilliseconds = 100;

// `saving` is the text that the first signal prints on a terminal.
void install_signal_handlers(const std::string& saving, bool json);

// Sets the error that a second signal prints from now on. Its code is kNotSaved.
void say_when_lost(const Error& lost);
// Declares that everything is saved. From now on signals have no effect.
void nothing_to_lose();

// Ignores SIGXFSZ and SIGPIPE, so that a full disk or a closed pipe becomes an ordinary write error.
void ignore_write_signals();

}  // namespace plimsoll::engine
