// The figures' own bitmap font: printable ASCII, seven rows above the baseline and two below.
#pragma once

namespace tessera_examples {

inline constexpr int glyph_rows = 9;
inline constexpr int capital_rows = 7;

// One glyph, trimmed to the columns it uses.
class Glyph {
 public:
  explicit Glyph(char character);  // anything but printable ASCII gives the question mark
  int columns() const { return columns_; }
  bool at(int column, int row) const;  // false outside

 private:
  int index_;
  int first_column_ = 0;
  int columns_ = 0;
};

}  // namespace tessera_examples
