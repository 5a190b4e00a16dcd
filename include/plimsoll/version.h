/// @file
/// The version of Plimsoll. It is defined only here; the build system and the program read it from this file.
#pragma once

/// Changes if programs for the earlier version may have to be changed.
#define PLIMSOLL_VERSION_MAJOR 1
/// Changes if features are added.
#define PLIMSOLL_VERSION_MINOR 0
/// Changes if bugs are fixed and no features are added.
#define PLIMSOLL_VERSION_PATCH 0

/// @cond
#define PLIMSOLL_VERSION_TEXT_(major, minor, patch) #major "." #minor "." #patch
#define PLIMSOLL_VERSION_TEXT(major, minor, patch) PLIMSOLL_VERSION_TEXT_(major, minor, patch)
/// @endcond

/// The version as a string literal, "1.2.3".
#define PLIMSOLL_VERSION PLIMSOLL_VERSION_TEXT(PLIMSOLL_VERSION_MAJOR, PLIMSOLL_VERSION_MINOR, PLIMSOLL_VERSION_PATCH)
