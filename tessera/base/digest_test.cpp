#include "tessera/base/digest.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

std::string digest_of(std::string_view text) {
  return Digest().add_bytes(std::as_bytes(std::span(text))).hex();
}

// The examples of FIPS 180-4.
TEST(Digest, IsSha256) {
  EXPECT_EQ(digest_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest_of(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Digest, PiecesMakeNoDifference) {
  const std::string text(200, 'x');
  const auto bytes = std::as_bytes(std::span(text));
  for (const size_t first : {1, 55, 56, 63, 64, 65, 130}) {
    Digest digest;
    digest.add_bytes(bytes.first(first)).add_bytes(bytes.subspan(first));
    EXPECT_EQ(digest.hex(), digest_of(text)) << first;
  }
}

TEST(Digest, ListsOfTextsDiffer) {
  EXPECT_NE(Digest().add("ab").add("c").hex(), Digest().add("a").add("bc").hex());
  EXPECT_NE(Digest().add(int64_t{1}).hex(), Digest().add(int32_t{1}).hex());
}

}  // namespace
}  // namespace tessera
