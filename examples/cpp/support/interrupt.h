// What Ctrl-C does to a program that writes files: it ends at once, but no file stays half-written.
#pragma once

#include <functional>

namespace tessera_examples {

// From now on SIGINT and SIGTERM end the program with a word on stderr, and as these signals do
// without a handler: a shell script that called the program ends as well.
void end_on_interrupt();

// Runs `write` to its end; a signal that arrives meanwhile takes effect afterwards.
void write_uninterrupted(const std::function<void()>& write);

}  // namespace tessera_examples
