/// @file
/// The version of Plimsoll. This is its only place: the build system and the program read it here.
#pragma once

/// Changes when a program written for the version before may have to be changed.
#define PLIMSOLL_VERSION_MAJOR 1
/// Changes when something is added.
#define PLIMSOLL_VERSION_MINOR 0
/// Changes when faults are mended and nothing is added.
#define PLIMSOLL_VERSION_PATCH 0

/// @cond
#define PLIMSOLL_VERSION_TEXT_(major, minor, patch) #major "." #minor "." #patch
#define PLIMSOLL_VERSION_TEXT(major, minor, patch) PLIMSOLL_VERSION_TEXT_(major, minor, patch)
/// @endcond

/// The version as a string literal, "1.2.3".
#define PLIMSOLL_VERSION PLIMSOLL_VERSION_TEXT(PLIMSOLL_VERSION_MAJOR, PLIMSOLL_VERSION_MINOR, PLIMSOLL_VERSION_PATCH)
