#include "tessera/launch/option_words.h"

#include "tessera/base/error.h"
#include "tessera/launch/option_table.h"

namespace tessera {
namespace {

constexpr const char* where_listed = "`poprun --help` lists them";

// Goes through the words up to the program.
class OptionReader {
 public:
  explicit OptionReader(const std::vector<std::string>& words) : words_(words) {}

  OptionWords read() {
    while (at_ < words_.size() && words_[at_].size() > 1 && words_[at_].front() == '-') {
      const std::string& word = words_[at_++];
      if (word == "--") break;
      if (word[1] == '-') {
        read_long(std::string_view(word).substr(2));
      } else {
        read_short(word);
      }
    }
    result_.program.assign(words_.begin() + static_cast<std::ptrdiff_t>(at_), words_.end());
    return std::move(result_);
  }

 private:
  // name or name=value
  void read_long(std::string_view word) {
    const size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    const OptionRow* row = find_option(name);
    check(row != nullptr, ErrorKind::value, "there is no option --{}; {}", name, where_listed);
    if (equals == std::string_view::npos) return add(*row);
    check(row->takes_value(), ErrorKind::value, "--{} takes no value, got '{}'", name,
          word.substr(equals + 1));
    add(*row, word.substr(equals + 1));
  }

  // -H list, -Hlist, -v and -vv
  void read_short(const std::string& word) {
    const OptionRow* row = find_option(word[1]);
    const bool is_known = row != nullptr && (row->takes_value() || word.size() == 2);
    if (word.find_first_not_of('v', 1) == std::string::npos && word.size() > 2) {
      return add(*find_option("vv"));
    }
    check(is_known, ErrorKind::value, "there is no option {}; {}", word, where_listed);
    if (word.size() == 2) return add(*row);
    add(*row, word.substr(word[2] == '=' ? 3 : 2));
  }

  // With the value that follows as a word of its own, if it takes one.
  void add(const OptionRow& row) {
    const bool follows = at_ < words_.size();
    switch (row.kind) {
      case OptionKind::flag:
        return add(row, "");
      case OptionKind::yes_or_no:
        return add(row, follows && is_yes_or_no(words_[at_]) ? words_[at_++] : "yes");
      default:
        check(follows, ErrorKind::value, "--{} needs a value: {}", row.name, row.value);
        add(row, words_[at_++]);
    }
  }

  void add(const OptionRow& row, std::string_view text) {
    result_.given.push_back({std::string(row.name), std::string(text)});
  }

  const std::vector<std::string>& words_;
  size_t at_ = 0;
  OptionWords result_;
};

}  // namespace

bool OptionWords::has(std::string_view name) const {
  for (const GivenOption& option : given) {
    if (option.name == name) return true;
  }
  return false;
}

std::string OptionWords::last(std::string_view name) const {
  std::string text;
  for (const GivenOption& option : given) {
    if (option.name == name) text = option.text;
  }
  return text;
}

OptionWords read_option_words(const std::vector<std::string>& arguments) {
  return OptionReader(arguments).read();
}

}  // namespace tessera
