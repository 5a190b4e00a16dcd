// Calibrations: what is written is read back, what is hostile is refused, and plans take their seconds from it and
// nothing else.
#include "device/calibration.h"

#include <fmt/format.h>

#include <cmath>
#include <span>

#include "base/digest.h"
#include "device/calibrated_device.h"
#include "device/kernel_key.h"
#include "report/plan_report.h"
#include "search/given_plan.h"
#include "tests/support/fake_device.h"
#include "tests/support/problem.h"

namespace plimsoll::engine::testing {
namespace {

constexpr const char* kVersion = "1.2.3";

DeviceInfo some_device() {
  DeviceInfo info;
  info.name = "A CPU, 2 threads";
  info.kind = "cpu";
  info.library = "lib 1";
  return info;
}

Calibration calibration_of(const DeviceInfo& device, const std::vector<KernelTime>& times, MachineRates rates = {}) {
  Calibration calibration(device, kVersion);
  calibration.set_rates(rates);
  EXPECT_EQ(calibration.add(times), times.size());
  return calibration;
}

// Every kernel of the plan, with seconds that no backend offers.
std::vector<KernelTime> times_of(const Plan& plan, const Device& device, double first = 1e-3) {
  std::map<std::string, KernelTime> times;
  for (const PhasePlan& phase : plan.phases)
    for (const Node& node : phase.graph.nodes) {
      const KernelOffer offer = require(device.offer(phase.graph, node));
      if (offer.seconds == 0) continue;
      const std::string key = kernel_key(phase.graph, node, offer, device.info().tf32);
      const double seconds = first * (1 + static_cast<double>(times.size()));
      times.try_emplace(key, KernelTime{key, seconds, offer.seconds});
    }
  std::vector<KernelTime> list;
  for (auto& [key, time] : times) list.push_back(std::move(time));
  return list;
}

TEST(Calibration, IsReadBackAsItWasWritten) {
  const Calibration written =
      calibration_of(some_device(), {{"matmul|gemm|0| f32[2,3]", 1.0 / 3e5, 2e-6}, {"add|tiles|0|", 1e-9, 3.6e-4}},
                     {2.5e11, 1.0 / 3 * 1e11});
  const Calibration read = require(Calibration::parse(written.text(), "file"));
  EXPECT_EQ(read.text(), written.text());
  EXPECT_EQ(read.digest(), written.digest());
  EXPECT_EQ(read.rates().bytes_per_second, 1.0 / 3 * 1e11);
  ASSERT_NE(read.find("matmul|gemm|0| f32[2,3]"), nullptr);
  EXPECT_EQ(read.find("matmul|gemm|0| f32[2,3]")->seconds, 1.0 / 3e5);
  EXPECT_EQ(read.find("matmul|gemm|0| f32[2,4]"), nullptr);
  EXPECT_EQ(read.difference(some_device(), kVersion), "");
}

TEST(Calibration, OfAnotherDeviceOrVersionIsTold) {
  const Calibration calibration = calibration_of(some_device(), {});
  EXPECT_NE(calibration.difference(some_device(), "1.2.4"), "");
  for (std::string DeviceInfo::*part :
       {&DeviceInfo::name, &DeviceInfo::kind, &DeviceInfo::library, &DeviceInfo::driver}) {
    DeviceInfo other = some_device();
    other.*part += "x";
    EXPECT_NE(calibration.difference(other, kVersion), "");
  }
  DeviceInfo driven = some_device();
  driven.driver = "driver 570";
  EXPECT_EQ(calibration_of(driven, {}).difference(some_device(), kVersion), "")
      << "a card that is not here has no driver";
}

std::string with_digest(const std::string& body) {
  Digest digest;
  digest.add(std::as_bytes(std::span(body)));
  return fmt::format("plimsoll calibration 1\ndigest {}\n{}", digest.text(), body);
}

// Each text has the right digest, as anyone can compute it.
TEST(Calibration, ThatIsHostileIsRefused) {
  const std::string head = "device A CPU, 2 threads\nkind cpu\nlibrary lib 1\ndriver \nversion 1.2.3\n";
  const std::string rates = "flops_per_second 1e11\nbytes_per_second 1e10\n";
  ASSERT_TRUE(Calibration::parse(with_digest(head + rates + "1e-3 2e-3 add|a|0\n1e-3 2e-3 add|b|0\n"), "file"));
  std::vector<std::string> bad = {"",
                                  head,
                                  rates + head,
                                  head + "flops_per_second 1e11\n",
                                  head + rates + "1e-3 2e-3 add|a|0",
                                  head + rates + "1e-3 add|a|0\n",
                                  head + rates + "1e-3 2e-3\n",
                                  head + rates + "\n",
                                  head + rates + "1e-3 2e-3 add|b|0\n1e-3 2e-3 add|a|0\n",
                                  head + rates + "1e-3 2e-3 add|a|0\n1e-3 2e-3 add|a|0\n",
                                  head + rates + "1e-3 2e-3 " + std::string(Calibration::kMostKey + 1, 'x') + "\n"};
  for (const char* number : {"nan", "-nan", "inf", "-inf", "0", "-0", "-1e-3", "1e300", "1e999", "1e-30", "3601",
                             "0x1p-3", "1e-3x", " 1e-3", "+1e-3", "", "1,5"}) {
    bad.push_back(head + rates + fmt::format("{} 2e-3 add|a|0\n", number));
    bad.push_back(head + rates + fmt::format("2e-3 {} add|a|0\n", number));
    if (std::string(number) != "0" && std::string(number) != "-0" && std::string(number) != "3601")
      bad.push_back(head + fmt::format("flops_per_second {}\nbytes_per_second 1e10\n", number));
    if (std::string(number) != "0" && std::string(number) != "-0" && std::string(number) != "3601")
      bad.push_back(head + fmt::format("flops_per_second 1e11\nbytes_per_second {}\n", number));
  }
  bad.push_back(head + rates + "3600 1e-9 add|a|0\n");  // a ratio that no kernel has
  for (const std::string& body : bad) {
    const auto read = Calibration::parse(with_digest(body), "file");
    ASSERT_FALSE(read) << body.substr(0, 300);
    EXPECT_EQ(read.error().code, ErrorCode::kBadConfig);
    EXPECT_NE(to_text(read.error()).find("line "), std::string::npos);
  }
  std::string large = head + rates;
  for (int i = 0; static_cast<Bytes>(large.size()) <= Calibration::kMostBytes; ++i)
    large += fmt::format("1e-3 1e-3 add|{:08}|{}\n", i, std::string(4000, 'x'));
  EXPECT_FALSE(Calibration::parse(with_digest(large), "file"));
}

TEST(Calibration, ThatWasDamagedIsRefused) {
  const std::string whole = calibration_of(some_device(), {{"add|tiles|0|", 1e-4, 2e-4}}, {1e11, 1e10}).text();
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] ^= 1;
    EXPECT_FALSE(Calibration::parse(changed, "file")) << "byte " << at;
    EXPECT_FALSE(Calibration::parse(whole.substr(0, at), "file")) << "cut at " << at;
  }
}

TEST(Calibration, NeverHoldsWhatItWouldRefuse) {
  Calibration calibration(some_device(), kVersion);
  EXPECT_EQ(calibration.add({{"a|b|0", NAN, 1e-3}, {"a|c|0", 1e-3, 0}, {"a|d|0", -1, 1}, {"", 1e-3, 1e-3}}), 0U);
  calibration.set_rates({INFINITY, -1});
  ASSERT_TRUE(Calibration::parse(calibration.text(), "file")) << calibration.text();
  // The newest measurements stay when there are too many.
  for (int i = 0; i < 3; ++i) {
    std::vector<KernelTime> times;
    for (int k = 0; k < 300; ++k)
      times.push_back({fmt::format("a|{}|{:03}{}", i, k, std::string(4000, 'x')), 1e-3, 1e-3});
    EXPECT_EQ(calibration.add(times), times.size());
    ASSERT_TRUE(Calibration::parse(calibration.text(), "file"));
    for (const KernelTime& time : times) EXPECT_NE(calibration.find(time.key), nullptr);
  }
}

TEST(KernelKey, TellsProblemsApartAndNamesNothing) {
  KernelOffer offer;
  offer.kernel = "k";
  const auto key = [&](const std::string& x, const std::string& attrs, const std::string& type) {
    const Graph graph =
        graph_of(fmt::format("graph \"g\"\n  %{} = input {} inputs\n  %{}/y = softmax(%{}){} : {} activations "
                             "layer=\"{}\"\n  output %{}/y\n",
                             x, type, x, x, attrs, type, x, x));
    return kernel_key(graph, graph.nodes[0], offer, false);
  };
  const std::string one = key("a", "", "f32[2,3]");
  EXPECT_EQ(one, key("b", "", "f32[2,3]"));
  EXPECT_NE(one, key("a", "", "f32[3,2]"));
  EXPECT_NE(one, key("a", "", "f64[2,3]"));
  offer.workspace = 256;
  EXPECT_NE(one, key("a", "", "f32[2,3]"));
  offer.workspace = 0;
  offer.kernel = "other";
  EXPECT_NE(one, key("a", "", "f32[2,3]"));
  offer.kernel = "k";
  offer.inputs = offer.outputs = {{"blocked", 64}};
  EXPECT_NE(one, key("a", "", "f32[2,3]"));
  EXPECT_EQ(family_of(one), "softmax|k");
}

struct CalibratedProblem : Problem {
  explicit CalibratedProblem(const std::string& model) : Problem(model, 8, host_devices().front()) {
    request.budget = 64 * kGiB;
    bare = require(search(request)).plan;
  }
  void calibrate(double first = 1e-3) {
    device = std::make_unique<CalibratedDevice>(
        backend->device(), std::make_shared<const Calibration>(
                               calibration_of(backend->device().info(), times_of(bare, backend->device(), first))));
    request.device = device.get();
  }
  Plan bare;
  std::unique_ptr<Device> device;
};

TEST(CalibratedPlan, TakesItsSecondsFromTheFileAndNothingElse) {
  CalibratedProblem problem(golden("cnn.keras"));
  const auto times = times_of(problem.bare, problem.backend->device());
  const Calibration calibration = calibration_of(problem.backend->device().info(), times);
  problem.calibrate();
  const Plan plan = require(search(problem.request)).plan;
  double sum = 0;
  for (const PhasePlan& phase : plan.phases)
    for (size_t n = 0; n < phase.nodes.size(); ++n) {
      const KernelOffer offer = require(problem.backend->device().offer(phase.graph, phase.graph.nodes[n]));
      const KernelTime* time = calibration.find(kernel_key(phase.graph, phase.graph.nodes[n], offer, false));
      ASSERT_TRUE(time != nullptr || offer.seconds == 0) << phase.graph.nodes[n].op;
      EXPECT_EQ(phase.nodes[n].seconds, time == nullptr ? 0 : time->seconds);
      EXPECT_EQ(phase.nodes[n].kernel, offer.kernel);
      sum += phase.nodes[n].seconds;
    }
  EXPECT_NEAR(plan.step_seconds, sum, 1e-11);
  EXPECT_NE(plan.step_seconds, problem.bare.step_seconds);
  EXPECT_EQ(plan.arena_bytes, problem.bare.arena_bytes);
  EXPECT_EQ(plan.overhead_bytes, problem.bare.overhead_bytes);
  EXPECT_EQ(plan.peak_bytes(), problem.bare.peak_bytes());

  EXPECT_EQ(plan.calibration, calibration.digest());
  EXPECT_EQ(problem.bare.calibration, "");
  EXPECT_EQ(to_json(require(search(problem.request)).plan), to_json(plan)) << "the same inputs give the same plan";
  EXPECT_EQ(require(plan_from_json(to_json(plan))).calibration, calibration.digest());
}

TEST(CalibratedPlan, NamesTheDigestInItsReports) {
  CalibratedProblem problem(golden("cnn.keras"));
  problem.calibrate();
  const SearchResult found = require(search(problem.request));
  const PlanReport report{&problem.open.model, "cnn.keras", problem.device->info(), 0, 0, &found};
  EXPECT_NE(plan_text(report).find("calibration " + found.plan.calibration), std::string::npos);
  EXPECT_EQ(plan_json(report)["calibration"], found.plan.calibration);
}

// Seconds do not decide whether a plan is the same: bytes and kernels do.
TEST(CalibratedPlan, IsAcceptedUnderAnotherCalibrationIfItsBytesAreTheSame) {
  CalibratedProblem problem(golden("resnet.keras"));
  problem.calibrate();
  const Plan plan = require(search(problem.request)).plan;
  problem.calibrate(7e-3);
  for (const bool of_checkpoint : {false, true}) {
    const GivenPlan given{plan, "a.plan", of_checkpoint};
    ASSERT_TRUE(check_plan(given));
    const auto accepted = accept_plan(given, problem.request);
    ASSERT_TRUE(accepted) << to_text(accepted.error());
    EXPECT_EQ(accepted->note, "");
    EXPECT_EQ(accepted->result.plan.calibration, problem.device->info().calibration);
    EXPECT_NE(accepted->result.plan.calibration, plan.calibration);
  }
}

TEST(CalibratedPlan, ThatDiffersUnderAnotherCalibrationIsRefusedWithTheReason) {
  CalibratedProblem problem(golden("cnn.keras"));
  Plan plan = problem.bare;  // stands for a plan whose settings give other bytes with the other seconds
  plan.phases[0].nodes[0].kernel += "?";
  problem.calibrate();
  const auto refused = accept_plan({plan, "a.plan", false}, problem.request);
  ASSERT_FALSE(refused);
  EXPECT_NE(to_text(refused.error()).find("another calibration"), std::string::npos) << to_text(refused.error());
  const auto noted = accept_plan({plan, "a.plan", true}, problem.request);
  ASSERT_TRUE(noted);
  EXPECT_NE(noted->note.find("another calibration"), std::string::npos) << noted->note;
}

// A device whose kernels move bytes, or compute.
class RatedDevice final : public FakeDevice {
 public:
  RatedDevice() {
    rated_ = some_device();
    rated_.bytes_per_second = 1e9;
    rated_.flops_per_second = 1e12;
  }
  const DeviceInfo& info() const override { return rated_; }
  Result<KernelOffer> offer(const Graph& graph, const Node& node) const override {
    KernelOffer offer;
    offer.kernel = node.op == "matmul" ? "compute" : "move";
    const double bytes = 2.0 * static_cast<double>(graph.value(node.outputs[0]).bytes());
    offer.seconds = node.op == "matmul" ? 1.0 : bytes / 1e9;
    return offer;
  }

 private:
  DeviceInfo rated_;
};

Graph graph_with(int64_t rows) {
  return graph_of(
      fmt::format("graph \"g\"\n  %a = input f32[{0},64] inputs\n  %w = input f32[64,64] weights\n  %y = "
                  "relu(%a) : f32[{0},64] activations\n  %z = matmul(%y, %w) : f32[{0},64] activations\n  "
                  "output %z\n",
                  rows));
}

double seconds_on(const Calibration& calibration, int64_t rows, size_t node) {
  const RatedDevice device;
  const Graph graph = graph_with(rows);
  return require(
             CalibratedDevice(device, std::make_shared<const Calibration>(calibration)).offer(graph, graph.nodes[node]))
      .seconds;
}

TEST(CalibratedDevice, ScalesWhatWasNotMeasured) {
  const RatedDevice device;
  const auto offered = [&](int64_t rows) {
    const Graph graph = graph_with(rows);
    return require(device.offer(graph, graph.nodes[0])).seconds;
  };
  // By the machine's rates if no such kernel was measured: traffic by the bandwidth, arithmetic by the peak.
  const Calibration rates = calibration_of(some_device(), {}, {5e11, 4e9});
  EXPECT_NEAR(seconds_on(rates, 1 << 16, 0), offered(1 << 16) / 4, 1e-9);
  EXPECT_NEAR(seconds_on(rates, 1 << 16, 1), 2.0, 1e-9);
  // By the ratio of kernels of the same op and name, at the nearest sizes.
  std::vector<KernelTime> times;
  for (const auto& [rows, ratio] : {std::pair{64, 0.5}, std::pair{1 << 16, 2.0}}) {
    const Graph graph = graph_with(rows);
    const KernelOffer offer = require(device.offer(graph, graph.nodes[0]));
    times.push_back({kernel_key(graph, graph.nodes[0], offer, false), ratio * offer.seconds, offer.seconds});
  }
  const Calibration ratios = calibration_of(some_device(), times, {5e11, 4e9});
  EXPECT_EQ(seconds_on(ratios, 64, 0), times[0].seconds);
  EXPECT_NEAR(seconds_on(ratios, 16, 0) / offered(16), 0.5, 1e-9);
  EXPECT_NEAR(seconds_on(ratios, 1 << 20, 0) / offered(1 << 20), 2.0, 1e-9);
  EXPECT_NEAR(seconds_on(ratios, 2048, 0) / offered(2048), 1.0, 0.1) << "half way between the two sizes";
  EXPECT_NEAR(seconds_on(ratios, 1 << 16, 1), 2.0, 1e-9) << "another op";
}

}  // namespace
}  // namespace plimsoll::engine::testing
