#include "tessera/launch/shell_words.h"

#include <cctype>

#include "tessera/base/error.h"

namespace tessera {
namespace {

bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

bool is_plain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("_-+=./,:@%^").find(c) != std::string_view::npos;
}

// Reads one word at a time; `rest` is what is left of the text.
class WordReader {
 public:
  explicit WordReader(std::string_view text) : text_(text), rest_(text) {}

  bool skip_blanks() {
    while (!rest_.empty() && is_blank(rest_.front())) rest_.remove_prefix(1);
    return !rest_.empty();
  }

  std::string word() {
    std::string word;
    while (!rest_.empty() && !is_blank(rest_.front())) read_piece(word);
    return word;
  }

 private:
  char take() {
    check(!rest_.empty(), ErrorKind::value, "a quote is not closed in {}", text_);
    const char first = rest_.front();
    rest_.remove_prefix(1);
    return first;
  }

  // A character, or everything up to the closing quote.
  void read_piece(std::string& word) {
    const char first = take();
    if (first == '\\') {
      word += take();
    } else if (first == '\'') {
      for (char c; (c = take()) != '\'';) word += c;
    } else if (first == '"') {
      for (char c; (c = take()) != '"';) word += is_escape(c) ? take() : c;
    } else {
      word += first;
    }
  }

  // Between double quotes a backslash counts only before what it could take the meaning of.
  bool is_escape(char c) const {
    return c == '\\' && !rest_.empty() &&
           std::string_view("\\\"$`").find(rest_.front()) != std::string_view::npos;
  }

  std::string_view text_, rest_;
};

}  // namespace

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  WordReader reader(text);
  while (reader.skip_blanks()) words.push_back(reader.word());
  return words;
}

std::string shell_quoted(std::string_view word) {
  bool plain = !word.empty();
  for (const char c : word) plain = plain && is_plain(c);
  if (plain) return std::string(word);
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string shell_quoted(std::span<const std::string> words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    text += shell_quoted(word);
  }
  return text;
}

}  // namespace tessera
