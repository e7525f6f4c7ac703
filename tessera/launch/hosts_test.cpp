#include "tessera/launch/hosts.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera {
namespace {

using Hosts = std::vector<std::string>;

// spec: 8.3 host
TEST(Hosts, AreListsAndRanges) {
  EXPECT_EQ(expand_hosts("a"), Hosts{"a"});
  EXPECT_EQ(expand_hosts("a, b.net ,10.0.0.1"), (Hosts{"a", "b.net", "10.0.0.1"}));
  EXPECT_EQ(expand_hosts("host[0-2,4]"), (Hosts{"host0", "host1", "host2", "host4"}));
  EXPECT_EQ(expand_hosts("n[08-10].x,m"), (Hosts{"n08.x", "n09.x", "n10.x", "m"}));
  EXPECT_EQ(expand_hosts("r[0-1]n[0-1]"), (Hosts{"r0n0", "r0n1", "r1n0", "r1n1"}));
}

TEST(Hosts, ThatAreNoneAreRefused) {
  for (const char* list :
       {"", "a,", ",a", "a,,b", "a b", "-oProxyCommand=x", "a[", "a]", "a]1[", "a[]", "a[x]",
        "a[2-1]", "a[1-]", "a[0-99999999]", "a[0-999][0-999]", "a,a", "a[0-1],a1", "a:2"}) {
    EXPECT_THROW(expand_hosts(list), Error) << list;
  }
  try {
    expand_hosts("a[2-1]");
  } catch (const Error& error) {
    EXPECT_EQ(error.message(),
              "'a[2-1]' is no list of hosts: 2-1 is no range; write a,b or host[0-2,4]");
  }
}

TEST(Hosts, ThisOneIsKnown) {
  EXPECT_TRUE(is_this_host("localhost") && is_this_host(this_host()));
  EXPECT_FALSE(is_this_host("another." + this_host()));
}

}  // namespace
}  // namespace tessera
