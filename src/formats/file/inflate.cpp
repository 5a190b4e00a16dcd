#include "formats/file/inflate.h"

#include <algorithm>
#include <new>

#if PLIMSOLL_HAS_ISAL
#include <isa-l/crc.h>
#include <isa-l/igzip_lib.h>
#else
#include <zlib.h>
#endif

namespace plimsoll::engine {
namespace {

// Both libraries count bytes in 32 bits.
uint32_t counted(size_t bytes) {
  return static_cast<uint32_t>(std::min<size_t>(bytes, UINT32_MAX));
}

}  // namespace

#if PLIMSOLL_HAS_ISAL

struct Inflater::Stream {
  inflate_state state;

  bool begin(DeflateWrapper wrapper) {
    isal_inflate_init(&state);
    state.crc_flag = wrapper == DeflateWrapper::kZlib   ? ISAL_ZLIB
                     : wrapper == DeflateWrapper::kGzip ? ISAL_GZIP
                                                        : ISAL_DEFLATE;
    return true;
  }
  void end() {}
  void again(DeflateWrapper wrapper) { begin(wrapper); }

  Step step(std::span<const std::byte> in, std::span<std::byte> out) {
    state.next_in = reinterpret_cast<uint8_t*>(const_cast<std::byte*>(in.data()));
    state.avail_in = counted(in.size());
    state.next_out = reinterpret_cast<uint8_t*>(out.data());
    state.avail_out = counted(out.size());
    const int failure = isal_inflate(&state);
    Step done;
    done.used = counted(in.size()) - state.avail_in;
    done.made = counted(out.size()) - state.avail_out;
    const bool damaged = failure != ISAL_DECOMP_OK && failure != ISAL_END_INPUT && failure != ISAL_OUT_OVERFLOW;
    done.state = damaged ? State::kDamaged : state.block_state == ISAL_BLOCK_FINISH ? State::kEnd : State::kMore;
    return done;
  }
};

uint32_t crc32_of(uint32_t before, std::span<const std::byte> data) {
  return crc32_gzip_refl(before, reinterpret_cast<const unsigned char*>(data.data()), data.size());
}

#else

struct Inflater::Stream {
  z_stream stream{};

  bool begin(DeflateWrapper wrapper) {
    const int window = wrapper == DeflateWrapper::kGzip ? 15 + 16 : wrapper == DeflateWrapper::kZlib ? 15 : -15;
    return ::inflateInit2(&stream, window) == Z_OK;
  }
  void end() { ::inflateEnd(&stream); }
  void again(DeflateWrapper) { ::inflateReset(&stream); }

  Step step(std::span<const std::byte> in, std::span<std::byte> out) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.data()));
    stream.avail_in = counted(in.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = counted(out.size());
    const int result = ::inflate(&stream, Z_NO_FLUSH);
    Step done;
    done.used = counted(in.size()) - stream.avail_in;
    done.made = counted(out.size()) - stream.avail_out;
    const bool more = result == Z_OK || result == Z_BUF_ERROR;
    done.state = result == Z_STREAM_END ? State::kEnd : more ? State::kMore : State::kDamaged;
    return done;
  }
};

uint32_t crc32_of(uint32_t before, std::span<const std::byte> data) {
  return static_cast<uint32_t>(::crc32_z(before, reinterpret_cast<const Bytef*>(data.data()), data.size()));
}

#endif

Inflater::Inflater(std::unique_ptr<Stream> stream, DeflateWrapper wrapper)
    : stream_(std::move(stream)), wrapper_(wrapper) {}

Inflater::~Inflater() {
  if (stream_) stream_->end();
}

std::unique_ptr<Inflater> Inflater::create(DeflateWrapper wrapper) {
  std::unique_ptr<Stream> stream(new (std::nothrow) Stream);
  if (!stream || !stream->begin(wrapper)) return nullptr;
  return std::unique_ptr<Inflater>(new (std::nothrow) Inflater(std::move(stream), wrapper));
}

Inflater::Step Inflater::step(std::span<const std::byte> in, std::span<std::byte> out) {
  return stream_->step(in, out);
}

void Inflater::reset() {
  stream_->again(wrapper_);
}

}  // namespace plimsoll::engine
