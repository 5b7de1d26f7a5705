import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { alternativePaths, canonicalPath, findAmbiguity, pathFault, pathSegment, slashedName } from "./request-path.ts";

const CANONICAL: [received: string, canonical: string][] = [
  ["/", "/"],
  ["*", "*"],
  ["/a/b", "/a/b"],
  ["/a/b/", "/a/b/"],
  ["//a///b//", "/a/b/"],
  ["/%61dmin", "/admin"],
  ["/%41%5A%30%7e%2d%2E%5f", "/AZ0~-._"],
  ["/a%2fb%5c", "/a%2Fb%5C"],
  ["/a%20b%3a%40", "/a%20b%3A%40"],
  ["/%2561", "/%2561"],
  ["/%25%36%31", "/%2561"],
  ["/caf%c3%a9", "/caf%C3%A9"],
  ["/café", "/caf%C3%A9"],
  ['/a"<>[]^`{|}', "/a%22%3C%3E%5B%5D%5E%60%7B%7C%7D"],
  ["/x:generateContent;a=b,c@d!$&'()*+", "/x:generateContent;a=b,c@d!$&'()*+"],
  ["/..a/.b/c..", "/..a/.b/c.."],
];
for (const [received, canonical] of CANONICAL)
  test(`${received} is canonically ${canonical}`, () => {
    assert.equal(canonicalPath(received), canonical);
    assert.equal(canonicalPath(canonical), canonical);
  });

/** `%61` with every character encoded repeatedly. */
function encodedTimes(times: number): string {
  let text = "%61";
  for (let i = 0; i < times; i++)
    text = text.replace(/./g, (one) => (one === "%" ? "%25" : `%25${one.charCodeAt(0).toString(16)}`));
  return text;
}

const FAULTS: [path: string, fault: RegExp][] = [
  ["/a\\b", /backslash/],
  ["/a%", /incomplete/],
  ["/a%2", /incomplete/],
  ["/a%zz", /incomplete/],
  ["/a%u002f", /incomplete/],
  ["/%00", /NUL/],
  ["/%2500", /NUL/],
  ["/a%0a", /control/],
  ["/a%7F", /control/],
  ["/a%250d", /control/],
  ["/..", /dot segment/],
  ["/a/./b", /dot segment/],
  ["/a/..;x/b", /dot segment/],
  ["/a/..%3bx/b", /dot segment/],
  ["/%2e%2E/b", /dot segment/],
  ["/a%2f..%5cb", /dot segment/],
  ["/%252e%252e%252fb", /dot segment/],
  ["/%25252e%25252e", /dot segment/],
  ["/..%20/b", /dot segment/],
  ["/..%3f", /dot segment/],
  ["/%c0%ae%c0%ae/b", /overlong/],
  ["/a%C0%AFb", /overlong/],
  ["/a%e0%80%af", /overlong/],
  ["/a%25c0%25af", /overlong/],
  [`/${encodedTimes(4)}`, /nested too deeply/],
];
for (const [path, fault] of FAULTS)
  test(`${path.slice(0, 40)} cannot be normalized safely`, () => assert.match(String(pathFault(path)), fault));

const SAFE = [
  "/",
  "/...",
  "/a..b",
  "/.well-known/x",
  "/a%20b",
  "/%25",
  "/a%252fb",
  "/caf%C3%A9",
  "/caf%E9",
  "/a;b",
  "/:x",
  "//a",
];
for (const path of SAFE) test(`${path} can be normalized`, () => assert.equal(pathFault(path), undefined));

test("an endless percent encoding is rejected in linear time", () => {
  for (const unit of ["%25", "25", "%2525", "%25%32%35", "%25253"])
    for (const path of [`/%${unit.repeat(2_000)}`, `/${unit.repeat(2_000)}2e`])
      assert.doesNotThrow(() => pathFault(path));
});

const AMBIGUOUS: [path: string, ambiguity: string | undefined][] = [
  ["/a/b", undefined],
  ["/a%20b", undefined],
  ["/zones/example.com.", undefined],
  ["/a%3Ab", undefined],
  ["/100%25", undefined],
  ["/a%2Fb", "an encoded separator"],
  ["/a%255Cb", "an encoded separator"],
  ["/a%252fb", "an encoded separator"],
  ["/a;b", "a path parameter"],
  ["/a%3Bb", "a path parameter"],
  ["/a%2562", "a character that is encoded twice"],
  ["/a%20/b", "a space at the end of a segment"],
];
for (const [path, ambiguity] of AMBIGUOUS)
  test(`${path} has ${ambiguity ?? "one reading"}`, () => assert.equal(findAmbiguity(path), ambiguity));

const READINGS: [path: string, readings: string[]][] = [
  ["/admin", []],
  ["/admin%20x", []],
  ["/admin;x/y", ["/admin/y"]],
  ["/;/admin", ["/admin"]],
  ["/admin.", ["/admin"]],
  ["/admin.%20", ["/admin"]],
  ["/admin%3Fx", ["/admin%3Fx".replace("%3F", "?"), "/admin"]],
  ["/%2561dmin", ["/admin", "/admin"]],
  ["/a%2F%5Cb", ["/a/b", "/a/b"]],
  ["/a%3Ab", ["/a:b", "/a:b"]],
  ["/a%3Bb", ["/a;b", "/a"]],
];
for (const [path, readings] of READINGS)
  test(`${path} could also be read as ${readings.join(" or ") || "nothing else"}`, () =>
    assert.deepEqual(alternativePaths(path), readings));

test("every spelling of a path has one canonical form, and different paths keep different ones [L16]", () => {
  const octet = fc.integer({ min: 0, max: 255 });
  fc.assert(
    fc.property(
      fc.array(octet, { maxLength: 12 }),
      fc.array(octet, { maxLength: 12 }),
      fc.infiniteStream(fc.boolean()),
      (one, two, coins) => {
        const toss = (): boolean => coins.next().value;
        const canonical = canonicalPath(spelled(one, () => true));
        assert.equal(canonicalPath(spelled(one, toss)), canonical);
        assert.equal(canonicalPath(canonical), canonical);
        assert.match(canonical, /^\/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-F]{2})*$/);
        const isSame = Buffer.from(one).equals(Buffer.from(two));
        assert.equal(canonicalPath(spelled(two, toss)) === canonical, isSame);
      },
    ),
    { numRuns: 5_000 },
  );
});

/** A segment of these octets. Unreserved ones are encoded or not, others always, in either hex case. */
function spelled(octets: readonly number[], toss: () => boolean): string {
  const pieces = octets.map((octet) => {
    const character = String.fromCharCode(octet);
    if (/[A-Za-z0-9._~-]/.test(character) && toss()) return character;
    const hex = octet.toString(16).padStart(2, "0");
    return `%${toss() ? hex : hex.toUpperCase()}`;
  });
  return `${toss() ? "/" : "//"}${pieces.join("")}`;
}

const PIECES = [
  ".", "..", "/", "\\", "%2e", "%2f", "%5C", "%25", "%252e", "%00", ";", "%3b", "?", "#", ":", "a", "%61", " ", "%20", "\t", "\r\n", "\ud800", "é",
  "%c0%ae", "2e", "2f", "%",
]; // biome-ignore format: a table

test("a value is one segment for every reader, or rejected [V8] [L17]", () => {
  const values = fc.oneof(
    fc.string(),
    fc.array(fc.constantFrom(...PIECES), { maxLength: 6 }).map((all) => all.join("")),
  );
  let accepted = 0;
  fc.assert(
    fc.property(values, (value) => {
      const segment = pathSegment(value);
      if (segment === undefined) return;
      accepted += 1;
      assert.equal(decodeURIComponent(segment), value);
      const path = `/a/b/${segment}/end`;
      assert.equal(new URL(`http://api.test${path}`).href, `http://api.test${path}`);
      for (const reading of readingsOf(path)) {
        const segments = reading.split(/[/\\]/);
        assert.equal(segments.length, 5, `${JSON.stringify(value)} read as ${reading}`);
        assert.ok(!/^\.{0,2}$/.test((segments[3] as string).trim()), `${JSON.stringify(value)} read as ${reading}`);
      }
    }),
    { numRuns: 5_000 },
  );
  assert.ok(accepted > 500, `only ${accepted} values were accepted`);
});

/** The path decoded repeatedly, with and without path parameters. */
function readingsOf(path: string): string[] {
  const readings = [path];
  for (let rounds = 0; rounds < 6; rounds++) {
    const last = readings.at(-1) as string;
    readings.push(last.replace(/%[0-7][0-9a-f]/gi, (code) => String.fromCharCode(Number.parseInt(code.slice(1), 16))));
  }
  return [...readings, ...readings.map((reading) => reading.replace(/;[^/\\]*/g, ""))];
}

const SEGMENTS: [value: string, segment: string | undefined][] = [
  ["a b", "a%20b"],
  ["gpt-4.1:latest", "gpt-4.1%3Alatest"],
  ["50%", "50%25"],
  ["100%25", "100%2525"],
  ["a;b", "a%3Bb"],
  ["", undefined],
  [".", undefined],
  ["..", undefined],
  ["...", undefined],
  [" .. ", undefined],
  ["..;x", undefined],
  ["?", undefined],
  ["../admin", undefined],
  ["a/../../x", undefined],
  ["a/b", undefined],
  ["..\\x", undefined],
  ["%2e%2e", undefined],
  ["%252e%252e%252fadmin", undefined],
  ["a%2Fb", undefined],
  ["a%5cb", undefined],
  ["a\0", undefined],
  ["a\nb", undefined],
  ["a%0a", undefined],
  ["\ud800", undefined],
];
for (const [value, segment] of SEGMENTS)
  test(`${JSON.stringify(value)} ${segment === undefined ? "is no segment" : `is the segment ${segment}`}`, () =>
    assert.equal(pathSegment(value), segment));

test("a name with slashes keeps its parts, and each part must be a segment", () => {
  assert.equal(slashedName("tuned/a b", "/"), "tuned/a%20b");
  assert.equal(slashedName("arn:aws:x/y", "%2F"), "arn%3Aaws%3Ax%2Fy");
  for (const name of ["a/../b", "/a", "a/", "a//b", "a/%2e%2e/b", "a\\b"])
    assert.equal(slashedName(name, "%2F"), undefined);
});
