// Finds the calibration of a device: the file that the user names, or the one that `doctor --calibrate` wrote to the
// cache.
#pragma once

#include <memory>

#include "api/options.h"
#include "device/calibration.h"

namespace plimsoll::engine {

// Returns the calibration for this device, or null if there is none. A file that the user named must be readable and of
// this device, else this fails; a file in the cache that is not is ignored, with a note.
Result<std::shared_ptr<const Calibration>> find_calibration(const RunOptions& options, const DeviceInfo& device);

// Returns the device with the seconds of its calibration, or null if there is none. The device must outlive it.
Result<std::unique_ptr<Device>> calibrated_device(const RunOptions& options, const Device& device);

// Returns the calibration that new measurements are added to: the one that is there, or an empty one. Fails if the user
// named a file that is not a calibration of this device, because it would be overwritten.
Result<Calibration> calibration_to_extend(const RunOptions& options, const DeviceInfo& device);

// Writes the calibration where find_calibration() finds it, and returns the path.
Result<std::string> save_calibration(const RunOptions& options, const DeviceInfo& device,
                                     const Calibration& calibration);

}  // namespace plimsoll::engine
