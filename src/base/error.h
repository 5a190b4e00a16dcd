// Errors are part of the public interface; inside, they are included by this name.
#pragma once

#include "plimsoll/error.h"  // IWYU pragma: export
