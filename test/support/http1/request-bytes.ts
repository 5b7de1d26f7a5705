/**
 * Generates random byte streams for request parsers: valid, unusual and hostile requests, and mutations of them. The
 * same seed gives the same stream.
 */

export type Random = () => number;

const pick = <Item>(random: Random, items: readonly Item[]): Item => items[Math.floor(random() * items.length)] as Item;

/** Plain ones stand first and are drawn most often. */
const often = <Item>(random: Random, plain: Item, odd: readonly Item[], share = 0.75): Item =>
  random() < share ? plain : pick(random, odd);

const METHODS = [
  "POST",
  "PUT",
  "HEAD",
  "OPTIONS",
  "DELETE",
  "PATCH",
  "TRACE",
  "M-SEARCH",
  "PROPFIND",
  "get",
  "BREW",
  "GE",
  "",
];
const TARGETS = [
  "/a?b=c",
  "*",
  "http://a/x",
  "/a%20b",
  "//",
  "/\xe9",
  "/a b",
  "/a\tb",
  "",
  "a",
  "/#f",
  "/\x7f",
  "a:443",
];
const VERSIONS = [
  "HTTP/1.0",
  "HTTP/1.2",
  "HTTP/2.0",
  "HTTP/0.9",
  "http/1.1",
  "HTTP/1.1 ",
  "HTTP/1.1x",
  "HTTP/11",
  "",
  "HTTP/1.",
  "XTTP/1.1",
];
const ENDS = ["\n", "\r", "\r\r\n", " \r\n", "\r\n ", "\n\r", "\0\r\n"];
const HEADERS = [
  "X-A: 1",
  "x-b:",
  "X-C:  padded\t ",
  "Accept: */*",
  "Connection: keep-alive",
  "Connection: close",
  "Connection: close, x",
  "Connection: upgrade",
  "Upgrade: h2c",
  "Expect: 100-continue",
  "Cookie: a=b; c=d",
  "X-High: \xe9\xff",
  "Transfer-Encoding: chunked",
  "Content-Length: 0",
];
const ODD_HEADERS = [
  "X : 1",
  "X\t: 1",
  " X: 1",
  "\tfolded",
  ": 1",
  "X",
  "X(: 1",
  "X: a\0b",
  "X: a\x01b",
  "X: a\x7fb",
  "X: a\rb",
  "X: a\nb",
  "X\xe9: 1",
  "Content-Length: 3",
  "Content-Length: +3",
  "Content-Length: 3, 3",
  "Content-Length: 0x3",
  "Content-Length: 99999999999999999999",
  "Content-Length: 1234567890123456",
  "Content-Length: 3 3",
  "Content-Length:",
  "content-length: 4",
  "Content-Length : 4",
  "Transfer-Encoding: gzip, chunked",
  "Transfer-Encoding: chunked, gzip",
  "Transfer-Encoding: identity",
  "Transfer-Encoding: xchunked",
  "Transfer-Encoding: \x0bchunked",
  "Transfer-Encoding:",
  "transfer-encoding: CHUNKED",
];
const EXTENSIONS = [
  ";a",
  ";a=b",
  ';a="b c"',
  ";a=b;c=d",
  ";",
  ";;",
  ";=b",
  ";a=",
  " ;a",
  ";a b",
  ';a="b',
  ";a\0",
  ";a\nb",
  "; a",
  ";a= b",
];
const TRAILERS = [
  "X-T: 1",
  "X-T:",
  "X-T",
  " X: 1",
  "X : 1",
  "Content-Length: 5",
  "Transfer-Encoding: chunked",
  "X: a\nb",
  "X: \0",
];
const BYTES = [
  "\r",
  "\n",
  "\r\n",
  " ",
  "\t",
  ":",
  ";",
  "\0",
  "\x7f",
  "\xff",
  "0",
  "a",
  "A",
  ",",
  '"',
  "\x0b",
  "GET / HTTP/1.1\r\n\r\n",
];

const lineEnd = (random: Random): string => often(random, "\r\n", ENDS, 0.985);

function body(random: Random): string {
  const text = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n0\r\n\r\nabc";
  return text.slice(0, Math.floor(random() * text.length));
}

function chunks(random: Random): string {
  let text = "";
  for (let left = Math.floor(random() * 4); left > 0; left--) {
    const data = body(random) || "x";
    const size = often(
      random,
      data.length.toString(16),
      ["0x1", "-1", "", "g", "00000005", "FFFFFFFFFFFFFFFFF", "5 ", "fffffff0", "100000000"],
      0.93,
    );
    text +=
      size +
      (random() < 0.15 ? pick(random, EXTENSIONS) : "") +
      lineEnd(random) +
      data +
      often(random, "\r\n", ["\n", "x\r\n", "", "\r"], 0.97);
  }
  text += `${often(random, "0", ["00", "000", "0;x", "0 "], 0.9)}${lineEnd(random)}`;
  while (random() < 0.15) text += pick(random, TRAILERS) + lineEnd(random);
  return text + lineEnd(random);
}

function request(random: Random): string {
  const method = often(random, "GET", METHODS, 0.6);
  const line = [method, often(random, "/", TARGETS, 0.7), often(random, "HTTP/1.1", VERSIONS, 0.88)].join(
    often(random, " ", ["  ", "\t", ""], 0.985),
  );
  let text =
    (random() < 0.05 ? pick(random, ["\r\n", "\r\n\r\n", "\n", "\r", " ", "\r\n".repeat(20)]) : "") +
    line +
    lineEnd(random);
  if (random() < 0.95) text += `Host: a${lineEnd(random)}`;
  while (random() < 0.4) text += pick(random, random() < 0.9 ? HEADERS.slice(0, 12) : ODD_HEADERS) + lineEnd(random);
  const framing = random();
  if (framing < 0.4) return text + lineEnd(random);
  if (framing < 0.65) {
    const sent = body(random);
    const said = often(
      random,
      String(sent.length),
      [String(sent.length + 1), "0", `0${sent.length}`, `+${sent.length}`, ` ${sent.length} `],
      0.9,
    );
    return `${text}Content-Length: ${said}${lineEnd(random)}${lineEnd(random)}${sent}`;
  }
  if (framing < 0.95) {
    const coding = often(
      random,
      "chunked",
      ["Chunked", "gzip, chunked", "chunked ", "\tchunked", "chunked,", ",chunked"],
      0.92,
    );
    return `${text}Transfer-Encoding: ${coding}${lineEnd(random)}${lineEnd(random)}${chunks(random)}`;
  }
  return `${text}${pick(random, ODD_HEADERS)}${lineEnd(random)}${pick(random, HEADERS)}${lineEnd(random)}${lineEnd(random)}${body(random)}`;
}

function mutate(random: Random, text: string): string {
  const at = Math.floor(random() * text.length);
  const length = 1 + Math.floor(random() * 4);
  switch (Math.floor(random() * 5)) {
    case 0:
      return text.slice(0, at) + pick(random, BYTES) + text.slice(at);
    case 1:
      return text.slice(0, at) + text.slice(at + length);
    case 2:
      return text.slice(0, at) + pick(random, BYTES) + text.slice(at + 1);
    case 3:
      return text.slice(0, at) + text.slice(Math.max(0, at - 10), at) + text.slice(at);
    default:
      return text.slice(0, at);
  }
}

/** One stream of one to three requests, in pieces. */
export function requestBytes(random: Random): Buffer[] {
  let text = "";
  for (let left = 1 + Math.floor(random() * 3); left > 0; left--) text += request(random);
  for (let left = Math.floor(random() * 6) - 3; left > 0; left--) text = mutate(random, text);
  const bytes = Buffer.from(text, "latin1");
  const pieces: Buffer[] = [];
  let from = 0;
  for (let left = Math.floor(random() * 3); left > 0; left--) {
    const to = from + Math.floor(random() * (bytes.length - from));
    if (to > from) pieces.push(bytes.subarray(from, to));
    from = to;
  }
  return [...pieces, bytes.subarray(from)];
}
