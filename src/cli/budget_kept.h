// The word at the end on whether the budget was kept.
#pragma once

#include <string>

#include "api/request.h"
#include "execute/session.h"

namespace plimsoll::engine {

// P304 where the process held more than its budget. Called after everything was saved; `saved` says where.
Status check_peak(const Session& session, const Budget& budget, const std::string& saved);
// "process peak: 41.2 MiB of 47.0 MiB"; on a GPU also who counted.
std::string peak_text(const Session& session, const Budget& budget);

}  // namespace plimsoll::engine
