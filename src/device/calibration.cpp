#include "device/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <tuple>

#include "base/digest.h"

namespace plimsoll::engine {
namespace {

constexpr std::string_view kHeading = "plimsoll calibration 1";
constexpr double kLeastRate = 1e6, kMostRate = 1e18;
constexpr double kMostRatio = 1e6;  // between measured and offered seconds

bool is_time(double seconds) {
  return seconds >= Calibration::kLeastSeconds && seconds <= Calibration::kMostSeconds;  // false for NaN
}

bool is_rate(double rate) {
  return rate == 0 || (rate >= kLeastRate && rate <= kMostRate);
}

bool is_usable(const KernelTime& time) {
  return is_time(time.seconds) && is_time(time.offered) && time.seconds <= kMostRatio * time.offered &&
         time.offered <= kMostRatio * time.seconds && !time.key.empty() && time.key.size() <= Calibration::kMostKey;
}

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, '?');
  return text;
}

std::string digest_of(std::string_view text) {
  Digest digest;
  digest.add(std::as_bytes(std::span(text)));
  return digest.text();
}

std::string line_of(const KernelTime& time) {
  return fmt::format("{} {} {}\n", time.seconds, time.offered, time.key);
}

std::optional<double> number_of(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(number) ? std::optional(number)
                                                                                           : std::nullopt;
}

// Takes lines from the front of a text and counts them.
class Lines {
 public:
  Lines(std::string_view text, const std::string& from) : rest_(text), from_(from) {}

  bool done() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }

  std::optional<std::string_view> next() {
    ++number_;
    const size_t end = rest_.find('\n');
    if (end == std::string_view::npos) return std::nullopt;  // a line that was cut off
    const std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return line;
  }

  // Takes the line "NAME VALUE".
  Result<std::string> field(std::string_view name) {
    const auto line = next();
    if (!line || !line->starts_with(name) || line->size() <= name.size() || (*line)[name.size()] != ' ')
      return refuse(fmt::format("expected '{} ...'", name));
    return std::string(line->substr(name.size() + 1));
  }

  Result<double> rate(std::string_view name) {
    PLIMSOLL_ASSIGN(const std::string text, field(name));
    const auto number = number_of(text);
    if (!number || !is_rate(*number)) return refuse(fmt::format("{} is not a rate that a machine reaches", name));
    return *number;
  }

  tl::unexpected<Error> refuse(const std::string& why) const {
    return fail(Error{ErrorCode::kBadConfig,
                      fmt::format("{} is not a calibration that can be used", from_),
                      {fmt::format("line {}: {}", number_, why)},
                      {"create it again: plimsoll doctor --calibrate", "--calibration none   plan without it"}});
  }

 private:
  std::string_view rest_;
  const std::string& from_;
  int64_t number_ = 0;
};

Result<KernelTime> next_kernel(Lines& lines) {
  const auto line = lines.next();
  if (!line) return lines.refuse("the file ends within a line");
  const size_t first = line->find(' ');
  const size_t second = first == std::string_view::npos ? first : line->find(' ', first + 1);
  if (second == std::string_view::npos) return lines.refuse("expected 'SECONDS OFFERED KERNEL'");
  const auto seconds = number_of(line->substr(0, first));
  const auto offered = number_of(line->substr(first + 1, second - first - 1));
  KernelTime time{std::string(line->substr(second + 1)), seconds.value_or(0), offered.value_or(0)};
  if (!is_usable(time)) return lines.refuse("these are not the seconds of a kernel");
  return time;
}

}  // namespace

Calibration::Calibration(const DeviceInfo& device, std::string_view version)
    : device_(one_line(device.name)),
      kind_(one_line(device.kind)),
      library_(one_line(device.library)),
      driver_(one_line(device.driver)),
      version_(version) {
  update_digest();
}

Result<Calibration> Calibration::parse(std::string_view text, const std::string& from) {
  Lines lines(text, from);
  if (text.size() > static_cast<size_t>(kMostBytes)) return lines.refuse("the file is too large");
  if (lines.next() != kHeading) return lines.refuse(fmt::format("expected '{}'", kHeading));
  PLIMSOLL_ASSIGN(const std::string digest, lines.field("digest"));
  if (digest_of(lines.rest()) != digest) return lines.refuse("the digest is of other contents: the file was changed");
  Calibration made;
  PLIMSOLL_ASSIGN(made.device_, lines.field("device"));
  PLIMSOLL_ASSIGN(made.kind_, lines.field("kind"));
  PLIMSOLL_ASSIGN(made.library_, lines.field("library"));
  PLIMSOLL_ASSIGN(made.driver_, lines.field("driver"));
  PLIMSOLL_ASSIGN(made.version_, lines.field("version"));
  PLIMSOLL_ASSIGN(made.rates_.flops_per_second, lines.rate("flops_per_second"));
  PLIMSOLL_ASSIGN(made.rates_.bytes_per_second, lines.rate("bytes_per_second"));
  while (!lines.done()) {
    PLIMSOLL_ASSIGN(KernelTime time, next_kernel(lines));
    if (!made.kernels_.empty() && made.kernels_.back().key >= time.key)
      return lines.refuse("the kernels are not sorted, or one is there twice");
    made.kernels_.push_back(std::move(time));
  }
  made.digest_ = digest;
  return made;
}

size_t Calibration::add(const std::vector<KernelTime>& times) {
  std::map<std::string, KernelTime> all;
  size_t bytes = kMostKey;  // room for the lines before the kernels
  const auto take = [&](const KernelTime& time) {
    const size_t line = line_of(time).size();
    if (!is_usable(time) || bytes + line > static_cast<size_t>(kMostBytes)) return false;
    if (!all.try_emplace(time.key, time).second) return false;
    bytes += line;
    return true;
  };
  const auto added = static_cast<size_t>(std::count_if(times.begin(), times.end(), take));
  for (const KernelTime& time : kernels_) take(time);
  kernels_.clear();
  for (auto& [key, time] : all) kernels_.push_back(std::move(time));
  update_digest();
  return added;
}

void Calibration::set_rates(const MachineRates& rates) {
  rates_.flops_per_second = is_rate(rates.flops_per_second) ? rates.flops_per_second : 0;
  rates_.bytes_per_second = is_rate(rates.bytes_per_second) ? rates.bytes_per_second : 0;
  update_digest();
}

std::string Calibration::body() const {
  std::string text =
      fmt::format("device {}\nkind {}\nlibrary {}\ndriver {}\nversion {}\nflops_per_second {}\nbytes_per_second {}\n",
                  device_, kind_, library_, driver_, version_, rates_.flops_per_second, rates_.bytes_per_second);
  for (const KernelTime& time : kernels_) text += line_of(time);
  return text;
}

void Calibration::update_digest() {
  digest_ = digest_of(body());
}

std::string Calibration::text() const {
  return fmt::format("{}\ndigest {}\n{}", kHeading, digest_, body());
}

const KernelTime* Calibration::find(std::string_view key) const {
  const auto at = std::lower_bound(kernels_.begin(), kernels_.end(), key,
                                   [](const KernelTime& time, std::string_view wanted) { return time.key < wanted; });
  return at != kernels_.end() && at->key == key ? &*at : nullptr;
}

std::string Calibration::difference(const DeviceInfo& device, std::string_view version) const {
  const Calibration here(device, version);
  for (const auto& [what, then, now] :
       {std::tuple{"device", &device_, &here.device_}, std::tuple{"kind", &kind_, &here.kind_},
        std::tuple{"library", &library_, &here.library_}, std::tuple{"Plimsoll", &version_, &here.version_}})
    if (*then != *now) return fmt::format("{}: '{}' in the calibration, '{}' here", what, *then, *now);
  if (!here.driver_.empty() && driver_ != here.driver_)
    return fmt::format("driver: '{}' in the calibration, '{}' here", driver_, here.driver_);
  return {};
}

}  // namespace plimsoll::engine
