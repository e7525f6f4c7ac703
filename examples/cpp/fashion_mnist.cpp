// Trains a small convolutional network on Fashion-MNIST, measures how well it tells clothes apart,
// and classifies a picture of your own. `fashion_mnist --help` lists the options.
#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "examples/cpp/support/classifier.h"
#include "examples/cpp/support/figures.h"
#include "examples/cpp/support/idx.h"
#include "examples/cpp/support/interrupt.h"
#include "examples/cpp/support/picture.h"
#include "tessera/base/progress_bar.h"
#include "tessera/tessera.h"

namespace {

namespace fs = std::filesystem;
using namespace tessera_examples;

constexpr int64_t test_batch_size = 32;
const ClassNames class_names = {"T-shirt", "Trouser", "Pullover", "Dress", "Coat",
                                "Sandal",  "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};

// ---- Settings ----

struct Settings {
  fs::path data = default_data_folder();
  fs::path output = ".";
  fs::path image;
  fs::path weights;
  bool predict_only = false;
  int64_t epochs = 5;
  int64_t batch_size = 16;
  int64_t device_iterations = 1;
  std::optional<int64_t> train_limit;
  int64_t seed = 42;
};

void add_options(CLI::App& app, Settings& settings) {
  // An empty description keeps the bounds out of --help, where they tell nothing.
  const auto count = CLI::Range(int64_t{1}, int64_t{1'000'000}).description("");
  const auto any_seed = CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max()).description("");

  app.add_option("--data", settings.data,
                 "Where the data set's four idx files are (also: TESSERA_FASHION_MNIST)")
      ->type_name("FOLDER")
      ->default_str(settings.data.string());
  app.add_option("--output", settings.output, "Where weights and pictures go; created if missing")
      ->type_name("FOLDER")
      ->default_str(settings.output.string());
  app.add_option("--epochs", settings.epochs, "How often training goes through all images")
      ->type_name("N")
      ->check(count)
      ->capture_default_str();
  app.add_option("--batch-size", settings.batch_size, "Images per update of the weights")
      ->type_name("N")
      ->check(count)
      ->capture_default_str();
  app.add_option("--device-iterations", settings.device_iterations,
                 "Updates of the weights per call of the model")
      ->type_name("N")
      ->check(count)
      ->capture_default_str();
  app.add_option("--train-limit", settings.train_limit, "Train on the first N images only")
      ->type_name("N")
      ->check(count);
  app.add_option("--seed", settings.seed, "Where all random numbers start")
      ->type_name("N")
      ->check(any_seed)
      ->capture_default_str();

  auto* image = app.add_option("--image", settings.image,
                               "A PNG or JPEG of one piece of clothing to classify")
                    ->type_name("FILE");
  auto* weights = app.add_option("--weights", settings.weights, "The weights for --predict-only")
                      ->type_name("FILE");
  auto* predict_only = app.add_flag("--predict-only", settings.predict_only,
                                    "Only classify --image with --weights, without training");
  predict_only->needs(image)->needs(weights);
  weights->needs(predict_only);
}

// ---- Files ----

std::optional<Picture> read_photo(const fs::path& path) {
  if (path.empty()) return std::nullopt;
  return read_picture(path);
}

void save_picture(const Picture& picture, const fs::path& path) {
  write_uninterrupted([&] { write_png(picture, path); });
}

void save_samples(const ImageSet& set, const fs::path& path) {
  std::vector<GreyImage> images;
  std::vector<uint8_t> labels;
  for (int64_t i = 0; i < std::min<int64_t>(set.count, 15); ++i) {
    images.push_back(image_at(set, i));
    labels.push_back(set.labels[static_cast<size_t>(i)]);
  }
  save_picture(draw_sample_images(images, labels, class_names), path);
}

Model load_model(const fs::path& weights) {
  auto model = std::make_shared<ClassificationModel>();
  tessera::load_weights(tessera::weights_of(model), weights);
  model->eval();
  return model;
}

// ---- Training ----

// Adds the loss of each call to `losses`; returns their mean.
double train_epoch(tessera::Model<Model>& training, const tessera::DataLoader& loader,
                   std::vector<double>& losses) {
  const int64_t updates_per_call = training.options().device_iterations();
  tessera::ProgressBar bar("batches", loader.size() * updates_per_call,
                           {.leave = false, .level = 1});
  double total_loss = 0;
  int64_t calls = 0;
  for (const std::vector<torch::Tensor>& batch : loader) {
    const auto [output, loss] = training(batch[0], batch[1]);
    losses.push_back(loss.item<double>());
    total_loss += losses.back();
    ++calls;
    bar.set_postfix(fmt::format("loss={:.4f}", total_loss / static_cast<double>(calls)));
    bar.advance(updates_per_call);
  }
  return total_loss / static_cast<double>(calls);
}

struct Trained {
  Model model;
  std::vector<double> losses;  // one for each call
};

Trained train(const Settings& settings, const ImageSet& set) {
  tessera::Options options;
  options.deviceIterations(settings.device_iterations);
  options.randomSeed(settings.seed);  // PyTorch's too, so before the model draws its weights
  auto model = std::make_shared<ClassificationModel>();

  const torch::Tensor images = image_tensor(set.pixels);
  const torch::Tensor labels = label_tensor(set.labels);
  const tessera::DataLoader loader(options, {images, labels},
                                   {.batch_size = settings.batch_size, .shuffle = true});
  const int64_t images_per_call = loader.combinedBatchSize();
  if (loader.size() == 0) {
    throw std::runtime_error(fmt::format(
        "One call of the model takes {} images (batch size x device iterations), but there are "
        "only {} to train on; lower --batch-size or --device-iterations.",
        images_per_call, set.count));
  }

  const tessera::optim::SGD optimizer(model->parameters(), {.lr = 0.001, .momentum = 0.9});
  auto training = tessera::trainingModel(model, options, optimizer);
  training.compile(images.narrow(0, 0, images_per_call), labels.narrow(0, 0, images_per_call));

  std::vector<double> losses;
  tessera::ProgressBar bar("epochs", settings.epochs);
  for (int64_t epoch = 0; epoch < settings.epochs; ++epoch) {
    bar.set_postfix(fmt::format("loss={:.4f}", train_epoch(training, loader, losses)));
    bar.advance();
  }
  training.detachFromDevice();
  return {model, std::move(losses)};
}

// A training that diverged has no curve.
void save_loss_curve(const std::vector<double>& losses, int64_t epochs, const fs::path& path) {
  const auto finite = [](double loss) { return std::isfinite(loss) && loss >= 0; };
  if (std::all_of(losses.begin(), losses.end(), finite)) {
    save_picture(draw_loss_curve(losses, epochs), path);
  }
}

// ---- Evaluation ----

// A program takes only whole batches, so the last one is filled up with black images.
torch::Tensor fill_last_batch(const torch::Tensor& images) {
  const int64_t missing = (test_batch_size - images.size(0) % test_batch_size) % test_batch_size;
  return torch::cat({images, torch::full({missing, 1, image_side, image_side}, -1.0F)});
}

ConfusionCounts evaluate(const Model& model, const ImageSet& set) {
  tessera::Options options;
  const tessera::DataLoader loader(options, {fill_last_batch(image_tensor(set.pixels))},
                                   {.batch_size = test_batch_size});
  auto inference = tessera::inferenceModel(model, options);
  std::vector<torch::Tensor> said_per_batch;
  for (const std::vector<torch::Tensor>& batch : loader) {
    said_per_batch.push_back(inference(batch[0]).argmax(1));
  }
  inference.detachFromDevice();

  const torch::Tensor said = torch::cat(said_per_batch);
  ConfusionCounts counts{};
  for (size_t i = 0; i < set.labels.size(); ++i) {
    const auto predicted = said[static_cast<int64_t>(i)].item<int64_t>();
    ++counts[set.labels[i]][static_cast<size_t>(predicted)];
  }
  return counts;
}

double percent(int64_t part, int64_t whole) {
  return 100 * static_cast<double>(part) / static_cast<double>(whole);
}

void print_accuracy(const ConfusionCounts& counts) {
  std::string table = fmt::format("{:<10}  {:>6}  {:>8}\n", "Class", "Images", "Accuracy");
  int64_t all = 0;
  int64_t right = 0;
  for (size_t i = 0; i < class_count; ++i) {
    int64_t of_class = 0;
    for (const int64_t count : counts[i]) of_class += count;
    all += of_class;
    right += counts[i][i];
    const std::string accuracy =
        of_class == 0 ? "-" : fmt::format("{:.2f}%", percent(counts[i][i], of_class));
    table += fmt::format("{:<10}  {:>6}  {:>8}\n", class_names[i], of_class, accuracy);
  }
  fmt::print("Eval accuracy: {:.2f}%\n\n{}\n", percent(right, all), table);
}

// ---- Prediction ----

// Prints the three most probable classes and returns the first.
std::string classify(const Model& model, const GreyImage& image) {
  auto inference = tessera::inferenceModel(model);
  const torch::Tensor probabilities = inference(image_tensor(image.pixels)).exp().flatten();
  const auto [values, indices] = probabilities.topk(3);
  const auto name = [&classes = indices](int64_t i) {
    return class_names[static_cast<size_t>(classes[i].item<int64_t>())];
  };
  fmt::print("Predicted class: {}\n", name(0));
  for (int64_t i = 0; i < values.size(0); ++i) {
    fmt::print("  {:<10}  {:>6.2f}%\n", name(i), 100 * values[i].item<double>());
  }
  return name(0);
}

// ---- The program ----

void train_and_evaluate(const Settings& settings, const fs::path& weights) {
  const ImageSet train_set = read_training_images(settings.data, settings.train_limit);
  const ImageSet test_set = read_images(settings.data, Split::test);
  save_samples(train_set, settings.output / "sample_images.png");

  const auto [model, losses] = train(settings, train_set);
  write_uninterrupted(
      [&, &trained = model] { tessera::save_weights(tessera::weights_of(trained), weights); });
  save_loss_curve(losses, settings.epochs, settings.output / "loss_curve.png");

  const ConfusionCounts counts = evaluate(load_model(weights), test_set);
  print_accuracy(counts);
  save_picture(draw_confusion_matrix(counts, class_names),
               settings.output / "confusion_matrix.png");
}

void run(const Settings& settings) {
  // First, so that a wrong name is known before the training, not after it.
  const std::optional<Picture> photo = read_photo(settings.image);
  create_folder(settings.output);

  const fs::path weights =
      settings.predict_only ? settings.weights : settings.output / "classifier.pth";
  if (!settings.predict_only) train_and_evaluate(settings, weights);
  if (photo) {
    const GreyImage seen = prepare_clothing(*photo);
    const std::string verdict = "Predicted class: " + classify(load_model(weights), seen);
    save_picture(draw_before_after(*photo, seen, verdict),
                 settings.output / "image_before_after.png");
  }
  if (std::fflush(stdout) != 0) throw std::runtime_error("The results could not be printed.");
}

int complain(const char* sentence) {
  fmt::print(stderr, "fashion_mnist: {}\n", sentence);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app(
      "Trains a small convolutional network on Fashion-MNIST as one static program, measures how\n"
      "well it tells ten kinds of clothes apart, and classifies a picture of your own. Writes\n"
      "classifier.pth (torch.load reads it), sample_images.png, loss_curve.png,\n"
      "confusion_matrix.png and, for --image, image_before_after.png.\n");
  app.footer(
      "Examples:\n"
      "  fashion_mnist --output results --image trousers.jpg\n"
      "  fashion_mnist --predict-only --weights results/classifier.pth --image trousers.jpg\n");
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
