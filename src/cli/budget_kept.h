// Checks and reports at the end of a run whether the process stayed inside its budget.
#pragma once

#include <string>

#include "api/request.h"
#include "execute/session.h"

namespace plimsoll::engine {

// Fails with P304 if the process held more than its budget. Called after everything was saved; `saved` says where.
Status check_peak(const Session& session, const Budget& budget, const std::string& saved);
Status check_peak(Bytes peak, Bytes budget, const std::string& saved);
// Returns "process peak: 41.2 MiB of 47.0 MiB", and on a GPU also how the bytes were counted.
std::string peak_text(const Session& session, const Budget& budget);

}  // namespace plimsoll::engine
