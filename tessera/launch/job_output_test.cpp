#include "tessera/launch/job_output.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

using Kind = Packet::Kind;

const JobOutput::Time start{std::chrono::seconds(100)};
const JobOutput::Time before = start - std::chrono::seconds(1);
const std::string rule(74, '-');
const std::string noticed = rule + "\nmpirun noticed that process rank 1 exited\n" + rule + "\n";

// As mpirun passes it on.
std::string packet(int64_t instance, Kind kind, const std::string& text) {
  return "[1," + std::to_string(instance) + "]<stderr>:" + encode({instance, kind, text});
}

// spec: 8.2 mpirun
TEST(JobOutput, LinesOfInstancesHaveTags) {
  JobOutput job(false);
  job.add(packet(0, Kind::output, "a\nb") + packet(1, Kind::errors, "e\n") + "own\n", start);
  job.add(packet(1, Kind::output, "c\n").substr(0, 10), start);
  job.add(packet(1, Kind::output, "c\n").substr(10) + packet(0, Kind::output, "B\n"), start);
  const JobOutput::Text text = job.take(before);
  EXPECT_EQ(text.output, "[1,0]<stdout>:a\n[1,1]<stdout>:c\n[1,0]<stdout>:bB\n");
  EXPECT_EQ(text.errors, "[1,1]<stderr>:e\nown\n");
  EXPECT_FALSE(job.failure());
}

TEST(JobOutput, TheFirstFailureIsTold) {
  JobOutput job(false);
  job.add(packet(1, Kind::errors, "50%") + packet(1, Kind::failure, "3 it fell"), start);
  job.add(packet(0, Kind::failure, "4 it fell too") + noticed, start);
  job.finish();
  EXPECT_EQ(job.take(before).errors, "[1,1]<stderr>:50%\npoprun: it fell\n");
  EXPECT_EQ(job.failure(), (Failure{3, "it fell"}));
}

TEST(JobOutput, AnEndThatWasAskedForIsNoFailure) {
  JobOutput job(false);
  job.expect_end();
  job.add(packet(1, Kind::failure, "3 it fell") + noticed, start);
  EXPECT_EQ(job.take(before).errors, "");
  EXPECT_FALSE(job.failure());
}

TEST(JobOutput, EverythingMayBeWanted) {
  JobOutput job(true);
  job.add(packet(1, Kind::failure, "3 it fell") + packet(0, Kind::failure, "4 too") + noticed,
          start);
  EXPECT_EQ(job.take(before).errors, "poprun: it fell\npoprun: too\n" + noticed);
  EXPECT_EQ(job.of_mpirun(), noticed);
}

TEST(JobOutput, WhatIsNotOverIsShownInTheEnd) {
  JobOutput job(false);
  job.add(packet(0, Kind::output, "50%") + "cut", start);
  EXPECT_EQ(job.take(before).output, "");
  EXPECT_TRUE(job.has_begun());
  job.finish();
  const JobOutput::Text text = job.take(start);
  EXPECT_EQ(text.output, "[1,0]<stdout>:50%");
  EXPECT_EQ(text.errors, "cut\n");
}

}  // namespace
}  // namespace tessera
