// Samples as files for <img> and <audio>: BMP and WAV, the formats that take a header and nothing else.

/** Return one base64 file for each of the samples in `data`, float32 [n, ...shape]. */
export function encodeFiles(data, { shape, sample_rate: rate }) {
  const size = shape.reduce((product, side) => product * side, 1);
  const rows = Array.from({ length: data.length / size }, (_, row) => data.subarray(row * size, (row + 1) * size));
  return rows.map((x) => base64(rate ? wav(x, rate) : bmp(x, shape)));
}

export const mediaType = ({ sample_rate: rate }) => (rate ? "audio/wav" : "image/bmp");

/** Encode an image [channel, height, width] in [0, 1], of 1 or 3 channels, in 24 bits. */
function bmp(x, [channels, height, width]) {
  const pixels = Uint8ClampedArray.from(x, (value) => 255 * value); // rounds and clips
  const stride = Math.ceil((3 * width) / 4) * 4;
  const [file, header] = newFile(54, stride * height);
  file.set([0x42, 0x4d]); // BM
  header.setUint32(2, file.length, true);
  header.setUint32(10, 54, true);
  header.setUint32(14, 40, true);
  header.setInt32(18, width, true);
  header.setInt32(22, -height, true); // negative: the top row first
  header.setUint16(26, 1, true);
  header.setUint16(28, 24, true);
  for (let y = 0; y < height; y++) {
    for (let place = 0; place < 3 * width; place++) {
      const channel = channels === 1 ? 0 : 2 - (place % 3); // blue, green, red
      file[54 + y * stride + place] = pixels[(channel * height + y) * width + Math.floor(place / 3)];
    }
  }
  return file;
}

/** Encode audio [1, time] in [-1, 1], in 16 bits. */
function wav(x, rate) {
  const [file, view] = newFile(44, 2 * x.length);
  const text = (at, letters) => file.set([...letters].map((letter) => letter.charCodeAt(0)), at);
  text(0, "RIFF");
  view.setUint32(4, file.length - 8, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true); // PCM
  view.setUint16(22, 1, true); // mono
  view.setUint32(24, rate, true);
  view.setUint32(28, 2 * rate, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, 2 * x.length, true);
  x.forEach((value, at) => view.setInt16(44 + 2 * at, Math.round(32767 * Math.min(1, Math.max(-1, value))), true));
  return file;
}

function newFile(header, content) {
  const file = new Uint8Array(header + content);
  return [file, new DataView(file.buffer)];
}

function base64(file) {
  const parts = [];
  for (let at = 0; at < file.length; at += 0x4000) parts.push(String.fromCharCode(...file.subarray(at, at + 0x4000)));
  return btoa(parts.join(""));
}
