/**
 * Lists the functions and macros of the generated CEL reference.
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
      entry(
        "has",
        "Whether a field exists. It is an error if the value that contains the field does not exist.",
        "has(a.b) -> bool",
      ),
      entry("default", "The first value, or the second if the first is an error.", "default(dyn, dyn) -> dyn"),
      entry(
        "coalesce",
        "The first argument that is neither an error nor null. If there is none, null if any argument is null.",
        "coalesce(dyn, ...) -> dyn",
      ),
    ],
  },
  {
    title: "Lists and maps",
    functions: [
      entry("all", "Whether the condition holds for every element (or key).", "list.all(x, bool) -> bool"),
      entry("exists", "Whether the condition holds for at least one element (or key).", "list.exists(x, bool) -> bool"),
      entry(
        "exists_one",
        "Whether the condition holds for exactly one element (or key).",
        "list.exists_one(x, bool) -> bool",
      ),
      entry("existsOne", "The same as `exists_one`.", "list.existsOne(x, bool) -> bool"),
      entry("filter", "The elements (or keys) for which the condition holds.", "list.filter(x, bool) -> list"),
      entry(
        "map",
        "A list with the result of the expression for each element (or key), or only for elements that meet the condition.",
        "list.map(x, dyn) -> list",
        "list.map(x, bool, dyn) -> list",
      ),
      entry(
        "size",
        "The number of elements, keys, characters, or bytes.",
        "size(list | map | string | bytes) -> int",
        "x.size() -> int",
      ),
      entry(
        "join",
        "The strings of a list joined together, with an optional separator.",
        "list.join() -> string",
        "list.join(string) -> string",
      ),
    ],
  },
  {
    title: "Strings",
    functions: [
      entry("contains", "Whether the string contains another string.", "string.contains(string) -> bool"),
      entry("startsWith", "Whether the string starts with another string.", "string.startsWith(string) -> bool"),
      entry("endsWith", "Whether the string ends with another string.", "string.endsWith(string) -> bool"),
      entry(
        "matches",
        "Whether an RE2 pattern matches anywhere in the string, in time linear in the length of the string.",
        "string.matches(string) -> bool",
        "matches(string, string) -> bool",
      ),
      entry(
        "regexReplace",
        "The string with every match of an RE2 pattern replaced. In the replacement, `$1`, or `$` and a name in braces, refers to a group.",
        "string.regexReplace(string, string) -> string",
        "regexReplace(string, string, string) -> string",
      ),
      entry(
        "replace",
        "The string with every occurrence of a substring replaced, or only the given number of occurrences.",
        "string.replace(string, string) -> string",
        "string.replace(string, string, int) -> string",
      ),
      entry(
        "split",
        "The parts between separators, or at most the given number of parts.",
        "string.split(string) -> list",
        "string.split(string, int) -> list",
      ),
      entry(
        "substring",
        "The characters from a position to the end, or up to another position.",
        "string.substring(int) -> string",
        "string.substring(int, int) -> string",
      ),
      entry(
        "stripPrefix",
        "The string without the prefix, if it has the prefix.",
        "string.stripPrefix(string) -> string",
      ),
      entry(
        "stripSuffix",
        "The string without the suffix, if it has the suffix.",
        "string.stripSuffix(string) -> string",
      ),
      entry("trim", "The string without leading and trailing white space.", "string.trim() -> string"),
      entry("lowerAscii", "The string with `A` to `Z` in lower case.", "string.lowerAscii() -> string"),
      entry("upperAscii", "The string with `a` to `z` in upper case.", "string.upperAscii() -> string"),
      entry("charAt", "The character at a position.", "string.charAt(int) -> string"),
      entry(
        "indexOf",
        "The first position of a substring, or -1.",
        "string.indexOf(string) -> int",
        "string.indexOf(string, int) -> int",
      ),
      entry(
        "lastIndexOf",
        "The last position of a substring, or -1.",
        "string.lastIndexOf(string) -> int",
        "string.lastIndexOf(string, int) -> int",
      ),
      entry(
        "format",
        "The string with `%s`, `%d`, `%f`, `%e`, `%x`, `%b`, and `%o` replaced by the values of a list.",
        "string.format(list) -> string",
      ),
      entry("strings.quote", "The string as a quoted literal.", "strings.quote(string) -> string"),
    ],
  },
  {
    title: "Encoding",
    functions: [
      entry(
        "json",
        "The value of a JSON document. Reading an integer beyond 2^53 fails the expression.",
        "json(string | bytes) -> dyn",
      ),
      entry("toJson", "The value as a JSON string.", "toJson(dyn) -> string"),
      entry("base64.encode", "The base64 encoding.", "base64.encode(string | bytes) -> string"),
      entry("base64Encode", "The same as `base64.encode`.", "base64Encode(string | bytes) -> string"),
      entry(
        "base64.decode",
        "The bytes of a base64 or base64url string. `string(base64.decode(x))` returns a string.",
        "base64.decode(string) -> bytes",
      ),
      entry("base64Decode", "The same as `base64.decode`.", "base64Decode(string) -> bytes"),
      entry(
        "form.encode",
        "A map as `application/x-www-form-urlencoded`, for example a request to a token endpoint.",
        "form.encode(map) -> string",
      ),
      entry(
        "unvalidatedJwtPayload",
        "The claims of a token, without verifying it. Do not use it in rules; verified claims are in `jwt`.",
        "unvalidatedJwtPayload(string) -> map",
      ),
      entry("url.encode", "The string percent-encoded as a URL component.", "url.encode(string) -> string"),
      entry("url.decode", "The string with percent-encoding decoded.", "url.decode(string) -> string"),
      entry("sha256.encode", "The SHA-256 digest in hexadecimal.", "sha256.encode(string | bytes) -> string"),
      entry("sha1.encode", "The SHA-1 digest in hexadecimal.", "sha1.encode(string | bytes) -> string"),
      entry("md5.encode", "The MD5 digest in hexadecimal.", "md5.encode(string | bytes) -> string"),
    ],
  },
  {
    title: "Numbers",
    functions: [
      entry("math.least", "The smallest of the arguments or of a list.", "math.least(number, ...) -> number"),
      entry("math.greatest", "The largest of the arguments or of a list.", "math.greatest(number, ...) -> number"),
      entry("min", "The same as `math.least`.", "min(number, ...) -> number"),
      entry("max", "The same as `math.greatest`.", "max(number, ...) -> number"),
      entry("math.abs", "The absolute value.", "math.abs(number) -> number"),
      entry("math.sign", "The sign of the number: -1, 0, or 1.", "math.sign(number) -> number"),
      entry("math.ceil", "The number rounded up.", "math.ceil(double) -> double"),
      entry("math.floor", "The number rounded down.", "math.floor(double) -> double"),
      entry(
        "math.round",
        "The number rounded to the nearest integer, with halves away from zero.",
        "math.round(double) -> double",
      ),
      entry("math.trunc", "The number rounded toward zero.", "math.trunc(double) -> double"),
      entry("math.sqrt", "The square root.", "math.sqrt(double) -> double"),
      entry("math.isNaN", "Whether the number is NaN.", "math.isNaN(double) -> bool"),
      entry("math.isInf", "Whether the number is infinite.", "math.isInf(double) -> bool"),
      entry("math.isFinite", "Whether the number is neither NaN nor infinite.", "math.isFinite(double) -> bool"),
      entry("random", "A random number from 0 (inclusive) to 1 (exclusive).", "random() -> double"),
      entry("uuid", "A random UUID (version 4).", "uuid() -> string"),
    ],
  },
  {
    title: "Addresses",
    functions: [
      entry("isIP", "Whether the string is an IP address.", "isIP(string) -> bool"),
      entry("isCIDR", "Whether the string is a network such as `10.0.0.0/8`.", "isCIDR(string) -> bool"),
      entry(
        "ip",
        "The address in its canonical form (an IPv4-mapped address as IPv4), or the address of a network.",
        "ip(string) -> string",
        "cidr.ip() -> string",
      ),
      entry("cidr", "The network in its canonical form.", "cidr(string) -> string"),
      entry("containsIP", "Whether the network contains the address.", "cidr.containsIP(string) -> bool"),
      entry("containsCIDR", "Whether the network contains the other network.", "cidr.containsCIDR(string) -> bool"),
      entry("masked", "The network with its host bits cleared.", "cidr.masked() -> string"),
      entry("prefixLength", "The prefix length of the network.", "cidr.prefixLength() -> int"),
      entry("family", "The IP version, 4 or 6.", "ip.family() -> int"),
      entry("isLoopback", "Whether the address is a loopback address.", "ip.isLoopback() -> bool"),
      entry("isPrivate", "Whether the address is private (RFC 1918, RFC 4193).", "ip.isPrivate() -> bool"),
      entry("isUnspecified", "Whether the address is `0.0.0.0` or `::`.", "ip.isUnspecified() -> bool"),
      entry("isLinkLocalUnicast", "Whether the address is link-local unicast.", "ip.isLinkLocalUnicast() -> bool"),
      entry(
        "isLinkLocalMulticast",
        "Whether the address is link-local multicast.",
        "ip.isLinkLocalMulticast() -> bool",
      ),
    ],
  },
  {
    title: "Time",
    functions: [
      entry(
        "timestamp",
        "A timestamp from an RFC 3339 string or from seconds since 1970.",
        "timestamp(string | int) -> timestamp",
      ),
      entry(
        "duration",
        "A duration from a string such as `1h30m` or from seconds.",
        "duration(string | int) -> duration",
      ),
      ...[
        ["getFullYear", "The year."],
        ["getMonth", "The month, 0 to 11."],
        ["getDate", "The day of the month, from 1."],
        ["getDayOfMonth", "The day of the month, from 0."],
        ["getDayOfWeek", "The day of the week, from 0 (Sunday)."],
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
          "The field of a timestamp (in UTC, or in the given time zone) or of a duration.",
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
      entry("bool", "Converts the string `true` or `false`.", "bool(string) -> bool"),
      entry("int", "Converts to an integer.", "int(uint | double | string | timestamp | duration) -> int"),
      entry("uint", "Converts to an unsigned integer.", "uint(int | double | string) -> uint"),
      entry("double", "Converts to a floating-point number.", "double(int | uint | string) -> double"),
      entry("string", "Converts to a string. Bytes are decoded as UTF-8.", "string(dyn) -> string"),
      entry("bytes", "Encodes a string as UTF-8.", "bytes(string) -> bytes"),
      entry("type", "The type of a value, as in `type(x) == string`.", "type(dyn) -> type"),
      entry("dyn", "The value itself.", "dyn(dyn) -> dyn"),
    ],
  },
];

function entry(name: string, doc: string, ...signatures: string[]): FunctionDoc {
  return { name, signatures, doc };
}
