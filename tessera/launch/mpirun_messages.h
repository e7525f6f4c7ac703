// Lines that mpirun and ssh write themselves. Those are left out that only repeat, at length, what
// poprun says in a sentence: which instance failed, which hosts cannot be reached.
#pragma once

#include <string>
#include <vector>

namespace tessera {

class MpirunMessages {
 public:
  // With everything: nothing is left out.
  explicit MpirunMessages(bool everything) : everything_(everything) {}

  // The lines to be shown, now that this one came.
  std::vector<std::string> add(const std::string& line);
  // Those that were held back, when no more come.
  std::vector<std::string> finish();

  // From now on instances end because one failed, or because they are told to.
  void expect_end() { is_ending_ = true; }

  const std::string& all() const { return all_; }

 private:
  const bool everything_;
  bool is_ending_ = false;
  std::vector<std::string> banner_;  // between two rules of dashes, from the first one on
  std::string all_;
};

}  // namespace tessera
