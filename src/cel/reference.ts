/**
 * The functions and macros of the generated CEL reference. A test checks that the list matches the names that the
 * analyzer accepts.
 */
export interface FunctionDoc {
  readonly name: string;
  readonly signatures: readonly string[];
  readonly doc: string;
}

export interface FunctionGroup {
  readonly title: string;
  readonly functions: readonly FunctionDoc[];
}

export const FUNCTION_GROUPS: readonly FunctionGroup[] = [
  {
    title: "Presence and fallback",
    functions: [
      entry("has", "Whether a field is there; an error if what should hold it is not.", "has(a.b) -> bool"),
      entry("default", "The first value, or the second if the first is an error.", "default(dyn, dyn) -> dyn"),
      entry(
        "coalesce",
        "The first that is neither an error nor null; null if any was null.",
        "coalesce(dyn, ...) -> dyn",
      ),
    ],
  },
  {
    title: "Lists and maps",
    functions: [
      entry("all", "Whether the condition holds for every element (or key).", "list.all(x, bool) -> bool"),
      entry("exists", "Whether the condition holds for at least one.", "list.exists(x, bool) -> bool"),
      entry("exists_one", "Whether the condition holds for exactly one.", "list.exists_one(x, bool) -> bool"),
      entry("existsOne", "The same as `exists_one`.", "list.existsOne(x, bool) -> bool"),
      entry("filter", "The elements (or keys) for which the condition holds.", "list.filter(x, bool) -> list"),
      entry(
        "map",
        "A new list of what the expression gives for each element (or key), or for those that pass the condition.",
        "list.map(x, dyn) -> list",
        "list.map(x, bool, dyn) -> list",
      ),
      entry(
        "size",
        "How many elements, keys, characters or bytes.",
        "size(list | map | string | bytes) -> int",
        "x.size() -> int",
      ),
      entry("join", "The texts of a list as one.", "list.join() -> string", "list.join(string) -> string"),
    ],
  },
  {
    title: "Strings",
    functions: [
      entry("contains", "Whether the text contains another.", "string.contains(string) -> bool"),
      entry("startsWith", "Whether the text begins with another.", "string.startsWith(string) -> bool"),
      entry("endsWith", "Whether the text ends with another.", "string.endsWith(string) -> bool"),
      entry(
        "matches",
        "Whether an RE2 pattern matches anywhere in the text; linear in the length of the text.",
        "string.matches(string) -> bool",
        "matches(string, string) -> bool",
      ),
      entry(
        "regexReplace",
        "Every match of an RE2 pattern replaced; `$1`, or a name in braces after `$`, stands for a group.",
        "string.regexReplace(string, string) -> string",
        "regexReplace(string, string, string) -> string",
      ),
      entry(
        "replace",
        "Every occurrence of a text, or the first few, replaced.",
        "string.replace(string, string) -> string",
        "string.replace(string, string, int) -> string",
      ),
      entry(
        "split",
        "The parts between separators, at most that many if a number is given.",
        "string.split(string) -> list",
        "string.split(string, int) -> list",
      ),
      entry(
        "substring",
        "From a position to the end or to another position.",
        "string.substring(int) -> string",
        "string.substring(int, int) -> string",
      ),
      entry("stripPrefix", "Without this beginning, if it is there.", "string.stripPrefix(string) -> string"),
      entry("stripSuffix", "Without this end, if it is there.", "string.stripSuffix(string) -> string"),
      entry("trim", "Without white space around it.", "string.trim() -> string"),
      entry("lowerAscii", "A to Z as a to z.", "string.lowerAscii() -> string"),
      entry("upperAscii", "a to z as A to Z.", "string.upperAscii() -> string"),
      entry("charAt", "The character at a position.", "string.charAt(int) -> string"),
      entry(
        "indexOf",
        "Where a text first occurs, or -1.",
        "string.indexOf(string) -> int",
        "string.indexOf(string, int) -> int",
      ),
      entry(
        "lastIndexOf",
        "Where a text last occurs, or -1.",
        "string.lastIndexOf(string) -> int",
        "string.lastIndexOf(string, int) -> int",
      ),
      entry("format", "`%s`, `%d`, `%f`, `%e`, `%x`, `%b`, `%o` filled from a list.", "string.format(list) -> string"),
      entry("strings.quote", "The text as a quoted literal.", "strings.quote(string) -> string"),
    ],
  },
  {
    title: "Encoding",
    functions: [
      entry("json", "The value that a JSON text stands for.", "json(string | bytes) -> dyn"),
      entry("toJson", "The value as JSON text.", "toJson(dyn) -> string"),
      entry("base64.encode", "As base64.", "base64.encode(string | bytes) -> string"),
      entry("base64Encode", "The same as `base64.encode`.", "base64Encode(string | bytes) -> string"),
      entry("base64.decode", "From base64 or base64url: `string(base64.decode(x))`.", "base64.decode(string) -> bytes"),
      entry("base64Decode", "The same as `base64.decode`.", "base64Decode(string) -> bytes"),
      entry("url.encode", "Percent-encoded, as one component of a URL.", "url.encode(string) -> string"),
      entry("url.decode", "From percent-encoding.", "url.decode(string) -> string"),
      entry("sha256.encode", "The SHA-256 digest in hexadecimal.", "sha256.encode(string | bytes) -> string"),
      entry("sha1.encode", "The SHA-1 digest in hexadecimal.", "sha1.encode(string | bytes) -> string"),
      entry("md5.encode", "The MD5 digest in hexadecimal.", "md5.encode(string | bytes) -> string"),
    ],
  },
  {
    title: "Numbers",
    functions: [
      entry("math.least", "The least of the arguments or of a list.", "math.least(number, ...) -> number"),
      entry("math.greatest", "The greatest of the arguments or of a list.", "math.greatest(number, ...) -> number"),
      entry("math.abs", "Without its sign.", "math.abs(number) -> number"),
      entry("math.sign", "-1, 0 or 1.", "math.sign(number) -> number"),
      entry("math.ceil", "Rounded up.", "math.ceil(double) -> double"),
      entry("math.floor", "Rounded down.", "math.floor(double) -> double"),
      entry("math.round", "Rounded to the nearest, halves away from zero.", "math.round(double) -> double"),
      entry("math.trunc", "Rounded towards zero.", "math.trunc(double) -> double"),
      entry("math.sqrt", "The square root.", "math.sqrt(double) -> double"),
      entry("math.isNaN", "Whether it is not a number.", "math.isNaN(double) -> bool"),
      entry("math.isInf", "Whether it is infinite.", "math.isInf(double) -> bool"),
      entry("math.isFinite", "Whether it is neither.", "math.isFinite(double) -> bool"),
      entry("random", "A number from 0 up to, not including, 1.", "random() -> double"),
      entry("uuid", "A random UUID (version 4).", "uuid() -> string"),
    ],
  },
  {
    title: "Addresses",
    functions: [
      entry("isIP", "Whether the text is an IP address.", "isIP(string) -> bool"),
      entry("isCIDR", "Whether the text is a network such as `10.0.0.0/8`.", "isCIDR(string) -> bool"),
      entry(
        "ip",
        "The address in its canonical form (an IPv4-mapped one as IPv4), or the address of a network.",
        "ip(string) -> string",
        "cidr.ip() -> string",
      ),
      entry("cidr", "The network in its canonical form.", "cidr(string) -> string"),
      entry("containsIP", "Whether the address lies in the network.", "cidr.containsIP(string) -> bool"),
      entry("containsCIDR", "Whether the other network lies in this one.", "cidr.containsCIDR(string) -> bool"),
      entry("masked", "The network with its host bits cleared.", "cidr.masked() -> string"),
      entry("prefixLength", "The number after the slash.", "cidr.prefixLength() -> int"),
      entry("family", "4 or 6.", "ip.family() -> int"),
      entry("isLoopback", "Whether it is a loopback address.", "ip.isLoopback() -> bool"),
      entry("isPrivate", "Whether it is of a private network (RFC 1918, RFC 4193).", "ip.isPrivate() -> bool"),
      entry("isUnspecified", "Whether it is `0.0.0.0` or `::`.", "ip.isUnspecified() -> bool"),
      entry("isLinkLocalUnicast", "Whether it is link-local.", "ip.isLinkLocalUnicast() -> bool"),
      entry("isLinkLocalMulticast", "Whether it is link-local multicast.", "ip.isLinkLocalMulticast() -> bool"),
    ],
  },
  {
    title: "Time",
    functions: [
      entry("timestamp", "From RFC 3339, or seconds since 1970.", "timestamp(string | int) -> timestamp"),
      entry("duration", "From a text such as `1h30m`, or seconds.", "duration(string | int) -> duration"),
      ...[
        ["getFullYear", "The year."],
        ["getMonth", "The month, 0 to 11."],
        ["getDate", "The day of the month, from 1."],
        ["getDayOfMonth", "The day of the month, from 0."],
        ["getDayOfWeek", "The day of the week, 0 is Sunday."],
        ["getDayOfYear", "The day of the year, from 0."],
      ].map(([name = "", doc = ""]) =>
        entry(
          name,
          `${doc} In UTC, or in the given time zone.`,
          `timestamp.${name}() -> int`,
          `timestamp.${name}(string) -> int`,
        ),
      ),
      ...["getHours", "getMinutes", "getSeconds", "getMilliseconds"].map((name) =>
        entry(
          name,
          "That part of a time of day (in UTC, or in the given time zone) or of a duration.",
          `timestamp.${name}() -> int`,
          `timestamp.${name}(string) -> int`,
          `duration.${name}() -> int`,
        ),
      ),
    ],
  },
  {
    title: "Types",
    functions: [
      entry("bool", "From the text `true` or `false`.", "bool(string) -> bool"),
      entry("int", "To a whole number.", "int(uint | double | string | timestamp | duration) -> int"),
      entry("uint", "To a whole number without sign.", "uint(int | double | string) -> uint"),
      entry("double", "To a floating-point number.", "double(int | uint | string) -> double"),
      entry("string", "To text; bytes are read as UTF-8.", "string(dyn) -> string"),
      entry("bytes", "To bytes, as UTF-8.", "bytes(string) -> bytes"),
      entry("type", "The type: `type(x) == string`.", "type(dyn) -> type"),
      entry("dyn", "The value itself.", "dyn(dyn) -> dyn"),
    ],
  },
];

function entry(name: string, doc: string, ...signatures: string[]): FunctionDoc {
  return { name, signatures, doc };
}
