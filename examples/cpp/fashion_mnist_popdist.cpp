// Trains the network of fashion_mnist as several processes, which poprun starts:
//
//   poprun --num-instances=2 --num-replicas=4 build/bin/fashion_mnist_popdist
//
// Each process, an instance, has its part of the replicas and of the images. An update is the mean
// gradient of all replicas everywhere, so that all instances have the same weights all the time.
// Without poprun the program is one process. `fashion_mnist_popdist --help` lists the options.
#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "examples/cpp/support/classifier.h"
#include "examples/cpp/support/idx.h"
#include "examples/cpp/support/interrupt.h"
#include "tessera/tessera.h"

namespace {

namespace fs = std::filesystem;
namespace popdist = tessera::popdist;
using namespace tessera_examples;

constexpr int64_t test_batch_size = 20;

// ---- Settings ----

struct Settings {
  fs::path data = default_data_folder();
  fs::path output = ".";
  int64_t epochs = 5;
  int64_t batch_size = 16;
  double learning_rate = 0.001;
  int64_t replicas = 1;
  std::optional<int64_t> train_limit;
};

void add_options(CLI::App& app, Settings& settings) {
  // An empty description keeps the bounds out of --help, where they tell nothing.
  const auto count = CLI::Range(int64_t{1}, int64_t{1'000'000}).description("");

  app.add_option("--data", settings.data,
                 "Where the data set's four idx files are (also: TESSERA_FASHION_MNIST)")
      ->type_name("FOLDER")
      ->default_str(settings.data.string());
  app.add_option("--output", settings.output, "Where checkpoints go; created if missing")
      ->type_name("FOLDER")
      ->default_str(settings.output.string());
  app.add_option("--epochs", settings.epochs, "How often training goes through all images")
      ->type_name("N")
      ->check(count)
      ->capture_default_str();
  app.add_option("--batch-size", settings.batch_size,
                 "Images per update of the weights, of all replicas together")
      ->type_name("N")
      ->check(count)
      ->capture_default_str();
  app.add_option("--lr", settings.learning_rate, "The learning rate")
      ->type_name("X")
      ->capture_default_str();
  app.add_option("--replicas", settings.replicas, "Of one process; poprun has --num-replicas")
      ->type_name("N")
      ->check(count)
      ->capture_default_str();
  app.add_option("--train-limit", settings.train_limit, "Train on the first N images only")
      ->type_name("N")
      ->check(count);
}

// ---- Instances ----

template <typename... Arguments>
void log_in_single_instance(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  if (popdist::getInstanceIndex() != 0) return;
  fmt::print(text, std::forward<Arguments>(arguments)...);
  if (std::fflush(stdout) != 0) throw std::runtime_error("The results could not be printed.");
}

// The options of this instance, or of a process that nobody else belongs to.
tessera::Options make_options(const Settings& settings) {
  tessera::Options options;
  if (popdist::isPopdistEnvSet()) {
    options = popdist::options();  // with this instance's part of poprun's replicas
  } else {
    options.replicationFactor(settings.replicas);
  }
  // Instances shuffle all images alike and then take a part each, which needs a seed in common.
  options.randomSeed(42);
  return options;
}

// How many of the images of an update a replica sees.
int64_t share_of_a_replica(const Settings& settings, const tessera::Options& options) {
  const int64_t replicas = options.replication_factor() * popdist::getNumInstances();
  if (settings.batch_size % replicas != 0) {
    throw std::runtime_error(
        fmt::format("--batch-size must be a multiple of the {} replicas, not {}.", replicas,
                    settings.batch_size));
  }
  return settings.batch_size / replicas;
}

double mean_over_instances(double value) {
  return popdist::allReduce(torch::tensor(value, torch::kDouble), popdist::ReduceOp::average)
      .item<double>();
}

// ---- Training ----

Model model_of_first_instance() {
  auto model = std::make_shared<ClassificationModel>();
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& weight : model->parameters()) weight.copy_(popdist::broadcast(weight));
  return model;
}

// The mean loss of all instances.
double train_epoch(tessera::Model<Model>& training, const tessera::DataLoader& loader) {
  double total = 0;
  for (const std::vector<torch::Tensor>& batch : loader) {
    const auto [output, loss] = training(batch[0], batch[1]);
    total += loss.mean().item<double>();  // each replica has one
  }
  return mean_over_instances(total / static_cast<double>(loader.size()));
}

void save_checkpoint(const Model& model, const fs::path& folder, int64_t step) {
  const auto name = fmt::format("model-{}-{}.ckpt", step, popdist::getInstanceIndex());
  write_uninterrupted([&] { tessera::save_weights(tessera::weights_of(model), folder / name); });
}

Model train(const Settings& settings, const tessera::Options& options, const ImageSet& set) {
  const int64_t batch_size = share_of_a_replica(settings, options);
  log_in_single_instance("Instances: {}, replicas of each: {}, images per replica and update: {}\n",
                         popdist::getNumInstances(), options.replication_factor(), batch_size);
  const tessera::DataLoader loader(options, {image_tensor(set.pixels), label_tensor(set.labels)},
                                   {.batch_size = batch_size, .shuffle = true});
  if (loader.size() == 0) {
    throw std::runtime_error(fmt::format(
        "An update takes {} images, but there are only {} to train on; lower --batch-size.",
        settings.batch_size, set.count));
  }

  Model model = model_of_first_instance();
  const tessera::optim::SGD optimizer(model->parameters(),
                                      {.lr = settings.learning_rate, .momentum = 0.9});
  auto training = tessera::trainingModel(model, options, optimizer);
  for (int64_t epoch = 1; epoch <= settings.epochs; ++epoch) {
    const double loss = train_epoch(training, loader);
    save_checkpoint(model, settings.output, epoch * loader.size());
    log_in_single_instance("Epoch {}/{}: loss {:.4f}\n", epoch, settings.epochs, loss);
  }
  training.detachFromDevice();
  return model;
}

// ---- Evaluation ----

// Each instance looks at a part of the images.
void evaluate(const Model& model, const tessera::Options& options, const ImageSet& set) {
  model->eval();
  const tessera::DataLoader loader(options, {image_tensor(set.pixels), label_tensor(set.labels)},
                                   {.batch_size = test_batch_size});
  auto inference = tessera::inferenceModel(model, options);
  int64_t right = 0;
  int64_t seen = 0;
  for (const std::vector<torch::Tensor>& batch : loader) {
    right += inference(batch[0]).argmax(1).eq(batch[1]).sum().item<int64_t>();
    seen += batch[1].size(0);
  }
  const torch::Tensor all = popdist::allReduce(torch::tensor({right, seen}));
  log_in_single_instance("Eval accuracy: {:.2f}% of {} images\n",
                         100 * all[0].item<double>() / all[1].item<double>(),
                         all[1].item<int64_t>());
}

// ---- The program ----

void run(const Settings& settings) {
  if (popdist::isPopdistEnvSet()) popdist::init();
  create_folder(settings.output);
  const tessera::Options options = make_options(settings);
  const Model model =
      train(settings, options, read_training_images(settings.data, settings.train_limit));
  evaluate(model, options, read_images(settings.data, Split::test));
}

int complain(const char* sentence) {
  fmt::print(stderr, "fashion_mnist_popdist: {}\n", sentence);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app(
      "Trains a small convolutional network on Fashion-MNIST, as one process or, with poprun, as\n"
      "several, and measures how well it tells ten kinds of clothes apart. After each epoch each\n"
      "instance writes the weights to model-<updates>-<instance>.ckpt (torch.load reads it).\n");
  app.footer(
      "Example:\n"
      "  poprun --num-instances=2 --num-replicas=4 fashion_mnist_popdist --output results\n");
  add_options(app, settings);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }

  end_on_interrupt();
  try {
    run(settings);
  } catch (const c10::Error& error) {
    return complain(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return complain(error.what());
  }
  return 0;
}
