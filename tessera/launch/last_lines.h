// The end of a long text: what is shown of an instance that was to be silent, and failed.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

class LastLines {
 public:
  void add(std::string_view text);

  // At most 40 lines and 8 KiB, from the start of a line on.
  std::string text() const;

 private:
  std::string kept_;
};

}  // namespace tessera
