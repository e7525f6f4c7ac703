// Text as a shell reads it: options that hold several arguments in one, and commands that can be
// pasted.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Splits at blanks outside of quotes; knows ', " and \. Nothing is replaced: $HOME stays $HOME.
// Error where a quote is not closed.
std::vector<std::string> split_words(std::string_view text);

// In quotes where a shell would read it otherwise.
std::string shell_quoted(std::string_view word);
std::string shell_quoted(std::span<const std::string> words);

}  // namespace tessera
