// CSV: every line and field, with each delimiter.
#include "formats/csv/csv.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace plimsoll::engine;
  const fuzz::InputFile input({data, size});
  const auto file = File::open_read(input.path());
  if (!file) fuzz::found(to_text(file.error()));
  fuzz::check_error(csv_delimiter(*file));
  for (const char delimiter : {',', ';', '\t'}) {
    CsvReader reader(*file, delimiter);
    for (;;) {
      const auto more = reader.next();
      fuzz::check_error(more);
      if (!more || !*more) break;
      if (reader.position() < 0 || reader.position() >= file->size()) fuzz::found("a line outside the file");
      for (size_t i = 0; i < reader.size(); ++i)
        if (csv_is_missing(reader[i]) && csv_number(reader[i]) &&
            reader[i].find_first_of("nN") == std::string_view::npos)
          fuzz::found("a missing value that is a number");
    }
  }
  return 0;
}
