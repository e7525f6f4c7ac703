// Messages between the instances of a program: what brings them from one process to another. Every
// call is made by one thread, the first as well as the last; none of them waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace tessera::dist {

struct Message {
  int peer = 0;  // to whom, or from whom
  size_t size = 0;
  std::unique_ptr<std::byte[]> data = {};
};

// A peer that nothing can be sent to, or received from, any more.
struct Lost {
  int peer = 0;
  std::string why = {};
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Messages to one peer arrive in the order in which they are sent.
  virtual void send(Message message) = 0;
  // The next one that has arrived.
  virtual std::optional<Message> receive() = 0;
  // How many are still to be taken by their receivers, or on their way.
  virtual size_t sending() = 0;
  // The first peer that was lost; what is sent to it since goes nowhere.
  virtual const std::optional<Lost>& lost() const = 0;

  // All instances end here: nothing is sent any more.
  virtual void close() = 0;
};

// What the library that speaks MPI gives: a Transport, or null and why not. It is looked up by its
// name; the number is that of this interface.
inline constexpr uint32_t transport_version = 2;
inline constexpr const char* mpi_entry = "tessera_open_mpi";
using OpenMpi = Transport* (*)(uint32_t version, std::string* why);

}  // namespace tessera::dist
