// What signals do. The first SIGINT, SIGTERM or SIGHUP asks the command to save and end, which it does with exit code
// 5. A second one ends the process at once, with exit code 7 and a message of what is lost, unless everything was saved
// by then. SIGHUP that was ignored at the start (nohup) stays ignored.
//
// Some senders signal a process and its group, or send SIGINT and SIGTERM together: a signal within
// kSameRequestMilliseconds of the first one is the same request.
#pragma once

#include <string>

#include "base/error.h"

namespace plimsoll::engine {

inline constexpr long kSameRequestMilliseconds = 100;

// `saving`: what the first signal prints on a terminal.
void install_signal_handlers(const std::string& saving, bool json);

// What a second signal says from now on: an error of code kNotSaved.
void say_when_lost(const Error& lost);
// Everything is saved: signals change nothing any more.
void nothing_to_lose();

// A disk that is full or a reader that has gone shows as a failed write, which is an error like any other.
void ignore_write_signals();

}  // namespace plimsoll::engine
