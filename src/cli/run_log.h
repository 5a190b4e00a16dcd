// `--log FILE.jsonl`: one JSON object a line, appended as things happen.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "base/error.h"
#include "execute/fit.h"

namespace plimsoll {

class RunLog {
 public:
  static Result<RunLog> open(const std::string& path, bool append);  // "" writes nothing
  void write(const nlohmann::ordered_json& line);
  void step(const StepEvent& event);  // without an allocation
  Status failed() const;              // of any write so far

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  bool failed_ = false;
};

}  // namespace plimsoll
