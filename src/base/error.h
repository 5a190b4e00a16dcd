// Errors are part of the public interface. The engine's sources include them through this header.
#pragma once

#include "plimsoll/error.h"  // IWYU pragma: export
