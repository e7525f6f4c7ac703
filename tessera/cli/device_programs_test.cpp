#include "tessera/cli/device_programs.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "tessera/cli/device_tables.h"

namespace tessera {
namespace {

class DevicePrograms : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "tessera-programs-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    setenv("TESSERA_DEVICE_DIR", name.c_str(), 1);
    setenv("TESSERA_NUM_IPUS", "4", 1);
  }
  void TearDown() override {
    unsetenv("TESSERA_DEVICE_DIR");
    unsetenv("TESSERA_NUM_IPUS");
    std::filesystem::remove_all(folder_);
  }

  // The exit code; output and complaint are kept.
  template <typename Program>
  int run(Program program, std::vector<std::string> arguments) {
    std::ostringstream out, err;
    const int code = program(arguments, out, err);
    out_ = out.str();
    err_ = err.str();
    return code;
  }
  bool has(std::string_view part) const { return out_.find(part) != std::string::npos; }

  std::filesystem::path folder_;
  std::string out_, err_;
};

// The version of this program, which the tables show too.
std::string version() {
  std::ostringstream out, err;
  run_gc_info({"gc-info", "--version"}, out, err);
  const std::string text = out.str();
  return text.substr(text.rfind(' ') + 1, text.size() - text.rfind(' ') - 2);
}

TEST(DeviceTables, HaveTheFormOfGraphcores) {
  std::string cards = card_table(2);
  for (size_t at; (at = cards.find(version())) != std::string::npos;) cards.replace(at, 5, "x.y.z");
  EXPECT_EQ(
      cards,
      R"(+---------------+---------------------------------------------------------------------------------+
|  gc-monitor   |              Partition: tessera [active] has 2 reconfigurable IPUs              |
+-------------+--------------------+--------+--------------+----------+-------+----+------+-------+
|    IPU-M    |       Serial       |IPU-M SW|Server version|  ICU FW  | Type  | ID | IPU# |Routing|
+-------------+--------------------+--------+--------------+----------+-------+----+------+-------+
|  virtual-1  | 0000.0001.0000001  |        |    x.y.z     |   N/A    | M2000 | 0  |  1   |  DNC  |
|  virtual-1  | 0000.0001.0000001  |        |    x.y.z     |   N/A    | M2000 | 1  |  0   |  DNC  |
+-------------+--------------------+--------+--------------+----------+-------+----+------+-------+
)");
  const std::vector<Attachment> attached = {
      {0, false, {.pid = 205698, .command = "python", .user = "trainee01", .since = 100}}};
  EXPECT_EQ(
      process_table(attached, 113),
      R"(+-----------------------------------------------------------------------------------------------------------------+------------------------+-----------------+
|                                     Attached processes in partition tessera                                     |          IPU           |      Board      |
+--------+----------------------------------------------------------------------------------+--------+------------+----+----------+--------+--------+--------+
|  PID   |                                     Command                                      |  Time  |    User    | ID |  Clock   |  Temp  |  Temp  | Power  |
+--------+----------------------------------------------------------------------------------+--------+------------+----+----------+--------+--------+--------+
| 205698 |                                      python                                      |  13s   | trainee01  | 0  | 1330MHz  |  N/A   |  N/A   |  N/A   |
+--------+----------------------------------------------------------------------------------+--------+------------+----+----------+--------+--------+--------+
)");
}

TEST(DeviceTables, LongNamesKeepTheColumnsTogether) {
  const std::vector<Attachment> attached = {
      {12, false, {.pid = 1, .command = std::string(300, 'x'), .user = "a-very-long-user-name"}},
      {13, false, {.pid = 1, .command = "pythön", .user = "b"}}};
  std::istringstream lines(process_table(attached, 0));
  std::string line;
  std::getline(lines, line);
  const size_t width = line.size();
  while (std::getline(lines, line)) {
    EXPECT_EQ(line.size(), width + (line.find("pythön") != std::string::npos)) << line;
  }
}

TEST_F(DevicePrograms, MonitorShowsWhoHasAnIpu) {
  EXPECT_EQ(run(run_gc_monitor, {"gc-monitor"}), 0);
  EXPECT_TRUE(has("has 4 reconfigurable IPUs") && has("No attached processes"));
  const auto pair = try_acquire(std::array{*device_of_id(4, 4)}, "training model 'A'");
  ASSERT_TRUE(pair);
  EXPECT_EQ(run(run_gc_monitor, {"gc-monitor", "--no-card-info"}), 0);
  EXPECT_TRUE(has("Attached processes") && has("| 0  | 1330MHz  |") && has("| 1  | 1330MHz  |"));
  EXPECT_FALSE(has("reconfigurable"));
  EXPECT_EQ(run(run_gc_monitor, {"gc-monitor", "--json"}), 0);
  EXPECT_TRUE(has(R"("device_id": 4, "num_ipus": 2)") && has(R"("purpose": "training model 'A'")"));
  EXPECT_TRUE(has(R"("serial": )") && has(R"("board_power": null)"));
  EXPECT_EQ(run(run_gc_info, {"gc-info", "-d", "1", "-i"}), 0);
  EXPECT_FALSE(has("user process id: N/A"));
  EXPECT_EQ(run(run_gc_info, {"gc-info", "-d", "2", "-i"}), 0);
  EXPECT_TRUE(has("user process id: N/A"));
}

TEST_F(DevicePrograms, InfoListsDevicesAndGroups) {
  EXPECT_EQ(run(run_gc_info, {"gc-info", "-l"}), 0);
  EXPECT_TRUE(has("-+- Id: [0], target: [Fabric], IPU-M host: [virtual-1], IPU#: [3]\n"));
  EXPECT_TRUE(has("-+- Id: [6], target: [Multi IPU]\n |--- Id: [0], DNC Id: [0]"));
  EXPECT_FALSE(has("Id: [7]"));
  EXPECT_EQ(run(run_gc_info, {"gc-info", "--list-devices", "--json"}), 0);
  EXPECT_TRUE(has(R"({"id": 5, "target": "Multi IPU", "ipus": [2, 3]})"));
  EXPECT_EQ(run(run_gc_info, {"gc-info", "--ipu-count"}), 0);
  EXPECT_EQ(out_, "4\n");
  EXPECT_EQ(run(run_gc_info, {"gc-info", "-d", "6", "-i"}), 0);
  EXPECT_TRUE(has("target: Multi IPU\n") && has("ipus: 0, 1, 2, 3\n") && has("clock: 1330MHz\n"));
  EXPECT_EQ(run(run_gc_info, {"gc-info", "-d", "6", "-i", "--json"}), 0);
  EXPECT_TRUE(has(R"("average die temp": null)"));
}

TEST_F(DevicePrograms, InventoryShowsAll) {
  EXPECT_EQ(run(run_gc_inventory, {"gc-inventory"}), 0);
  EXPECT_TRUE(has("Device Id: [0]\n") && has("Device Id: [6]\n") && has("ipu architecture: ipu2"));
  EXPECT_EQ(run(run_gc_inventory, {"gc-inventory", "--json"}), 0);
  EXPECT_TRUE(out_.starts_with("{\"devices\": ["));
}

TEST_F(DevicePrograms, WrongArgumentsAreOneSentence) {
  EXPECT_EQ(run(run_gc_info, {"gc-info"}), 2);
  EXPECT_EQ(run(run_gc_info, {"gc-info", "-i"}), 2);
  EXPECT_NE(err_.find("needs --device-id"), std::string::npos) << err_;
  EXPECT_EQ(run(run_gc_info, {"gc-info", "-i", "-d", "x"}), 2);
  EXPECT_EQ(run(run_gc_info, {"gc-info", "-i", "-d", "7"}), 1);
  EXPECT_EQ(err_, "gc-info: there is no device 7; there are 7, and `gc-info -l` lists them\n");
  EXPECT_EQ(run(run_gc_monitor, {"gc-monitor", "--watch", "-1"}), 2);
  EXPECT_EQ(run(run_gc_monitor, {"gc-monitor", "what"}), 2);
  EXPECT_EQ(std::count(err_.begin(), err_.end(), '\n'), 1) << err_;
  EXPECT_EQ(run(run_gc_inventory, {"gc-inventory", "--version"}), 0);
  EXPECT_TRUE(has("gc-inventory of Tessera "));
  EXPECT_EQ(run(run_gc_monitor, {"gc-monitor", "--help"}), 0);
  EXPECT_TRUE(has("--watch"));
  setenv("TESSERA_NUM_IPUS", "many", 1);
  EXPECT_EQ(run(run_gc_monitor, {"gc-monitor"}), 1);
  EXPECT_TRUE(err_.starts_with("gc-monitor: TESSERA_NUM_IPUS must be")) << err_;
}

}  // namespace
}  // namespace tessera
