#include "api/calibration.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/digest.h"
#include "device/calibrated_device.h"
#include "formats/file/cache.h"
#include "formats/file/file.h"
#include "plimsoll/version.h"

namespace plimsoll::engine {
namespace {

// The name of the cache entry for a device. The driver is left out, so that a plan for a card elsewhere finds it too.
std::string entry_of(const DeviceInfo& device) {
  Digest digest;
  digest.add(bytes_of_text(fmt::format("{}\n{}\n{}", device.name, device.kind, device.library)));
  return fmt::format("calibration-{}.txt", digest.text());
}

Result<Calibration> read_file(const std::string& path) {
  PLIMSOLL_ASSIGN(const File file, File::open_read(path));
  std::string text(static_cast<size_t>(std::min(file.size(), Calibration::kMostBytes + 1)), '\0');
  PLIMSOLL_TRY(file.pread_exact(0, std::as_writable_bytes(std::span(text))));
  return Calibration::parse(text, path);
}

Result<std::shared_ptr<const Calibration>> named_by_user(const RunOptions& options, const DeviceInfo& device) {
  PLIMSOLL_ASSIGN(Calibration calibration, read_file(options.calibration));
  if (const std::string other = calibration.difference(device, PLIMSOLL_VERSION); !other.empty())
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("--calibration {}: it was not made on this device", options.calibration),
                      {other},
                      {"plimsoll doctor --calibrate   makes one", "--calibration none   plan without it"}});
  return std::make_shared<const Calibration>(std::move(calibration));
}

}  // namespace

Result<std::shared_ptr<const Calibration>> find_calibration(const RunOptions& options, const DeviceInfo& device) {
  if (options.calibration.empty()) return nullptr;
  if (options.calibration != kOwnCalibration) return named_by_user(options, device);
  const std::string entry = entry_of(device);
  const auto ignored = [&](const std::string& why) -> std::shared_ptr<const Calibration> {
    options.tell(fmt::format("note: the calibration of this device is not used: {}", why));
    return nullptr;
  };
  const auto text = find_cache_entry(entry);
  if (!text) return ignored(text.error().what);
  if (!*text) return nullptr;
  auto calibration = Calibration::parse(**text, entry);
  if (!calibration)
    return ignored(fmt::format("{}: {}", calibration.error().what, fmt::join(calibration.error().facts, ", ")));
  if (const std::string other = calibration->difference(device, PLIMSOLL_VERSION); !other.empty())
    return ignored(other);
  return std::make_shared<const Calibration>(std::move(*calibration));
}

Result<std::unique_ptr<Device>> calibrated_device(const RunOptions& options, const Device& device) {
  PLIMSOLL_ASSIGN(auto calibration, find_calibration(options, device.info()));
  if (!calibration) return nullptr;
  return std::make_unique<CalibratedDevice>(device, std::move(calibration));
}

Result<std::string> save_calibration(const RunOptions& options, const DeviceInfo& device,
                                     const Calibration& calibration) {
  const std::string text = calibration.text();
  if (options.calibration != kOwnCalibration) {
    PLIMSOLL_ASSIGN(AtomicFile file, AtomicFile::create(options.calibration));
    PLIMSOLL_TRY(file.write(bytes_of_text(text)));
    PLIMSOLL_TRY(file.commit());
    return options.calibration;
  }
  PLIMSOLL_ASSIGN(const std::string folder, cache_folder());
  const std::string entry = entry_of(device), path = folder + "/" + entry;
  write_cache_entry(entry, text);  // it reports no failures, so read it back
  if (read_cache_entry(entry) != text) return fail(ErrorCode::kWriteFailed, fmt::format("cannot write {}", path));
  return path;
}

Result<Calibration> calibration_to_extend(const RunOptions& options, const DeviceInfo& device) {
  const bool named = options.calibration != kOwnCalibration;
  if (named && ::access(options.calibration.c_str(), F_OK) != 0) return Calibration(device, PLIMSOLL_VERSION);
  PLIMSOLL_ASSIGN(const auto found, find_calibration(options, device));
  return found && found->difference(device, PLIMSOLL_VERSION).empty() ? *found : Calibration(device, PLIMSOLL_VERSION);
}

}  // namespace plimsoll::engine
