// Runs the program under test as a separate process, for behaviour that cannot be tested from inside.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

extern char** environ;

namespace plimsoll::engine::testing {

struct Ended {
  bool exited = false, hung = false;
  int code = -1;         // exit code, or the negative signal that ended it
  std::string messages;  // stderr
  std::string results;   // stdout
};

inline std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Returns the path of a program or library of this build. All of them are in one folder, which may have been moved.
inline std::string beside_this_program(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().string() + "/" + name;
}

inline std::vector<std::string> this_environment() {
  std::vector<std::string> list;
  for (char** variable = environ; *variable != nullptr; ++variable) list.emplace_back(*variable);
  return list;
}

// Writes the output to files in `folder`. Kills the program after `seconds`.
inline Ended run_program(const std::string& folder, const std::vector<std::string>& arguments,
                         std::vector<std::string> environment, int seconds) {
  const std::string program = beside_this_program("plimsoll");
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv, envp;
  for (std::string& word : words) argv.push_back(word.data());
  for (std::string& variable : environment) envp.push_back(variable.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 1, (folder + "/results").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  posix_spawn_file_actions_addopen(&files, 2, (folder + "/messages").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  pid_t child = 0;
  const int failed = posix_spawn(&child, program.c_str(), &files, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&files);
  Ended ended;
  if (failed != 0) return ended;
  int status = 0;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > limit && !ended.hung) {
      kill(child, SIGKILL);
      ended.hung = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ended.exited = WIFEXITED(status);
  ended.code = ended.exited ? WEXITSTATUS(status) : -WTERMSIG(status);
  ended.messages = text_of(folder + "/messages");
  ended.results = text_of(folder + "/results");
  return ended;
}

}  // namespace plimsoll::engine::testing
