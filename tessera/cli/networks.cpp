#include "tessera/cli/networks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/cli/quantities.h"

namespace tessera {
namespace {

// Bandwidths are those of the wire in one direction, by the standards. Latencies are from one
// program to the other, in one direction, and were put together from public figures:
//
//   through the kernel   15 us for each pass of an operating system's network stack, two of them;
//                        Rumble et al., "It's Time for Low Latency", HotOS 2011, table 1. What the
//                        wire and a switch add is small beside it.
//   around the kernel    0.6 us of adapters (Mellanox, ConnectX-6 product brief) and three switches
//                        of 0.13 us (Mellanox, Quantum product brief); for Slingshot four switches
//                        of 0.35 us (De Sensi et al., "An In-Depth Analysis of the Slingshot
//                        Interconnect", SC 2020). Sockets do not reach it, only RDMA does.
//   within a machine     6 us through TCP (github.com/rigtorp/ipc-bench); one core brought 42
//   Gbit/s
//                        through Linux's stack (Cai et al., "Understanding Host Network Stack
//                        Overheads", SIGCOMM 2021), which also is what one stream of the faster
//                        Ethernets may be held to.
constexpr double gbit = 0.125e9;  // a second, in bytes
constexpr Network table[] = {
    {"ethernet10", {30e-6, 10 * gbit}, "IEEE 802.3ae; two network stacks, Rumble et al. 2011"},
    {"ethernet25", {30e-6, 25 * gbit}, "IEEE 802.3by; two network stacks, Rumble et al. 2011"},
    {"ethernet100", {30e-6, 100 * gbit}, "IEEE 802.3ba; two network stacks, Rumble et al. 2011"},
    {"infiniband-hdr", {1e-6, 200 * gbit}, "IBTA 4x HDR, with RDMA; briefs of Mellanox"},
    {"slingshot", {2e-6, 200 * gbit}, "with RDMA; De Sensi et al. 2020"},
    {"loopback", {6e-6, 40 * gbit}, "TCP on one machine; ipc-bench, Cai et al. 2021"},
};

}  // namespace

std::span<const Network> networks() { return table; }

const Network& network_named(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Network& network : table) {
    if (network.name == name) return network;
    names.push_back(network.name);
  }
  fail(ErrorKind::value, "there is no network '{}'; there are {}", name, fmt::join(names, ", "));
}

std::string list_of_networks() {
  std::string text = fmt::format("{:<16}{:>8}  {:>10}  {}\n", "network", "latency", "bandwidth",
                                 "where the figures are from");
  for (const Network& network : table) {
    text +=
        fmt::format("{:<16}{:>8}  {:>10}  {}\n", network.name, seconds_text(network.link.latency),
                    bandwidth_text(network.link.bandwidth), network.source);
  }
  return text;
}

}  // namespace tessera
