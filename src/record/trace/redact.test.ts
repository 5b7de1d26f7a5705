import assert from "node:assert/strict";
import { test } from "node:test";
import {
  createRedaction,
  redactArguments,
  redactBody,
  redactJson,
  redactQuery,
  redactText,
  redactUrl,
  withoutSecrets,
} from "./redact.ts";

test("sensitive headers are redacted by name, in any case, and others are not [S5-5] [S2.1-19]", () => {
  const redaction = createRedaction(["X-Tenant-Key"]);
  const shown = redaction.headers(["authorization", "Bearer a", "x-tenant-key", "b", "cookie", "c", "accept", "d"]);
  assert.deepEqual(
    { ...shown },
    { authorization: "<redacted>", "x-tenant-key": "<redacted>", cookie: "<redacted>", accept: "d" },
  );
  assert.equal(redaction.isSensitive("AUTHORIZATION"), true);
  assert.equal(redaction.isSensitive("accept"), false);
});

test("repeated headers become a list, each value redacted", () => {
  const shown = createRedaction().headers(["set-cookie", "a=1", "set-cookie", "b=2", "x-n", "1", "x-n", "2"]);
  assert.deepEqual({ ...shown }, { "set-cookie": ["<redacted>", "<redacted>"], "x-n": ["1", "2"] });
});

test("a credential quoted in text is redacted, with and without its scheme", () => {
  const redaction = createRedaction();
  const pairs = ["authorization", "Bearer abc.def.ghi", "accept", "text/html"];
  assert.equal(
    redaction.scrub("got abc.def.ghi in Bearer abc.def.ghi for text/html", pairs),
    "got <redacted> in <redacted> for text/html",
  );
});

test("short values are not redacted, because they are words, not secrets", () => {
  assert.equal(createRedaction().scrub("the user is a", ["cookie", "a"]), "the user is a");
});

const copies = [
  { name: "the whole value", value: "Bearer abc.def.ghi", shown: "<redacted>" },
  { name: "the token alone", value: "abc.def.ghi", shown: "<redacted>" },
  { name: "a token inside another text", value: "t=secret-token-0123;x", shown: "t=<redacted>;x" },
  { name: "the value of one cookie", value: "0123456789abcdef", shown: "<redacted>" },
  { name: "another value", value: "Bearer", shown: "Bearer" },
  { name: "a word that a secret contains", value: "abc", shown: "abc" },
];
for (const { name, value, shown } of copies) {
  test(`a header that copies a sensitive one is redacted: ${name}`, () => {
    const redaction = createRedaction();
    const sensitive = [
      "authorization",
      "Bearer abc.def.ghi",
      "x-api-key",
      "secret-token-0123",
      "cookie",
      "a=b; sid=0123456789abcdef",
    ];
    assert.equal(redaction.headers(["x-copy", value, ...sensitive])["x-copy"], shown);
    // The same if only the values are available.
    assert.equal(redaction.headers(["x-copy", value], redaction.secrets(sensitive))["x-copy"], shown);
  });
}

test("a name that differs by underscores is as sensitive", () => {
  assert.equal(createRedaction().isSensitive("X_Api_Key"), true);
  assert.equal(createRedaction().isSensitive("x_other"), false);
});

const queries = [
  ["a=1&access_token=x", "a=1&access_token=<redacted>"],
  ["ACCESS_TOKEN=x", "ACCESS_TOKEN=<redacted>"],
  ["access%5Ftoken=x", "access%5Ftoken=<redacted>"],
  ["key=x&monkey=y", "key=<redacted>&monkey=y"],
  ["token=x", "token=<redacted>"],
  ["token", "token"],
  ["max_tokens=5", "max_tokens=5"],
  ["state=1&code=x", "state=1&code=<redacted>"],
  ["", ""],
  ["%zz=1", "%zz=1"],
] as const;
for (const [given, expected] of queries) {
  test(`the query ${JSON.stringify(given)} shows as ${JSON.stringify(expected)}`, () => {
    assert.equal(redactQuery(given), expected);
  });
}

const form = "application/x-www-form-urlencoded";
const PLANTED = "planted-0123456789";
const escapes = (name: string, written: (char: string) => string): string[] => [
  name,
  name.toUpperCase(),
  ...[...name].map((char, i) => name.slice(0, i) + written(char) + name.slice(i + 1)),
  [...name].map(written).join(""),
];
const inPercent = (name: string): string[] =>
  escapes(name, (char) => `%${char.charCodeAt(0).toString(16)}`).flatMap((one) => [
    one,
    one.replace(/%../g, (found) => found.toUpperCase()),
  ]);
const inJson = (name: string): string[] => escapes(name, (char) => `\\u00${char.charCodeAt(0).toString(16)}`);

/** Each output that decides by a name, with the spellings that readers of the format decode. */
const NAMED: Readonly<
  Record<string, { names: readonly string[]; spell(name: string): string[]; show(name: string): string }>
> = {
  query: {
    names: ["token", "code", "key", "sig", "access_token", "X-Amz-Signature"],
    spell: inPercent,
    show: (name) => redactQuery(`a=1&${name}=${PLANTED}&b=2`),
  },
  "parameters of a policy": {
    names: ["team", "my.parameter"],
    spell: (name) => inPercent(name).filter((one) => one !== name.toUpperCase()),
    show: (name) => redactQuery(`${name}=${PLANTED}`, ["team", "my.parameter"]),
  },
  "parameters of the configuration": {
    names: ["team"],
    spell: (name) => inPercent(name).filter((one) => one !== name.toUpperCase()),
    show(name) {
      const redaction = createRedaction();
      redaction.hideAlso({ parameters: ["team"] });
      return redaction.query(`${name}=${PLANTED}`);
    },
  },
  location: {
    names: ["token", "code"],
    spell: inPercent,
    show: (name) => JSON.stringify(createRedaction().headers(["location", `https://a.example/?${name}=${PLANTED}`])),
  },
  "fragment of a location": {
    names: ["access_token"],
    spell: inPercent,
    show: (name) => JSON.stringify(createRedaction().headers(["location", `https://a.example/#${name}=${PLANTED}`])),
  },
  URL: {
    names: ["token", "any"],
    spell: inPercent,
    show: (name) => redactUrl(`https://a.example/?${name}=${PLANTED}`),
  },
  form: {
    names: ["code", "client_secret", "refresh_token", "password"],
    spell: inPercent,
    show: (name) => redactBody(Buffer.from(`a=1&${name}=${PLANTED}`), form).toString(),
  },
  "body in JSON": {
    names: ["access_token", "client_secret"],
    spell: inJson,
    show: (name) => redactBody(Buffer.from(`{"${name}":"${PLANTED}"}`), "application/json").toString(),
  },
  JSON: {
    names: ["token", "api_key", "password"],
    spell: inJson,
    show: (name) => redactJson(`{"a":{"${name}":"${PLANTED}"}}`),
  },
  "JSON in a string": {
    names: ["token", "api_key"],
    spell: inJson,
    show: (name) => redactJson(JSON.stringify({ text: `{"${name}":"${PLANTED}"}` })),
  },
  header: {
    names: ["authorization", "x-api-key", "x-own"],
    spell: (name) => [name, name.toUpperCase(), name.replaceAll("-", "_")],
    show: (name) => JSON.stringify(createRedaction(["x-own"]).headers([name.toLowerCase(), PLANTED])),
  },
  argument: {
    names: ["--api-key", "--token"],
    spell: (name) => [name, name.toUpperCase(), `--${name.slice(2).replaceAll("-", "_")}`],
    show: (name) => redactArguments([name, PLANTED, `${name}=${PLANTED}`]).join(" "),
  },
};
for (const [place, { names, spell, show }] of Object.entries(NAMED))
  test(`a credential is hidden under every spelling of its name: ${place}`, () => {
    for (const name of names)
      for (const written of spell(name)) {
        const shown = show(written);
        assert.ok(!shown.includes(PLANTED), shown);
      }
  });

test("parameters from which a policy read its credential are hidden too", () => {
  assert.equal(redactQuery("team=x&a=1", ["team"]), "team=<redacted>&a=1");
});

test("headers and parameters that the configuration reads credentials from are hidden after that", () => {
  const redaction = createRedaction();
  assert.equal(redaction.query("team=x"), "team=x");
  redaction.hideAlso({ headers: ["X-Team-Key"], parameters: ["team"] });
  assert.equal(redaction.query("team=x&a=1"), "team=<redacted>&a=1");
  assert.deepEqual({ ...redaction.headers(["x-team-key", "x"]) }, { "x-team-key": "<redacted>" });
});

test("credentials in headers that are URLs are hidden", () => {
  const shown = createRedaction().headers(["location", "/cb?state=1&code=x#access_token=y", "x-url", "/cb?code=x"]);
  assert.deepEqual(
    { ...shown },
    { location: "/cb?state=1&code=<redacted>#access_token=<redacted>", "x-url": "/cb?code=x" },
  );
});

test("one cookie of several is scrubbed too, and words are not", () => {
  const pairs = ["cookie", "theme=dark; sid=0123456789abcdef"];
  assert.equal(createRedaction().scrub("dark 0123456789abcdef", pairs), "dark <redacted>");
});

const urls = [
  ["http://host.test/a?key=x&y=z#end", "http://host.test/a?key=<redacted>&y=<redacted>#end"],
  ["https://me:secret@host.test/", "https://<redacted>@host.test/"],
  ["https://host.test/a@b?", "https://host.test/a@b?"],
  ["is a?b=c", "is a?b=c"],
] as const;
for (const [given, expected] of urls) {
  test(`the URL ${given} shows as ${expected}`, () => {
    assert.equal(redactUrl(given), expected);
  });
}

const bodies = [
  {
    name: "a token request",
    type: form,
    body: "grant_type=authorization_code&code=c0de&code_verifier=v&client_secret=s&client_id=i",
  },
  {
    name: "a token response",
    type: "application/json",
    body: '{"access_token": "t0ken", "refresh_token":"r\\"x", "expires_in": 3600}',
  },
  {
    name: "a token response that was cut off",
    type: "application/json",
    body: '{"token_type":"Bearer","access_token":"t0ken',
  },
  { name: "an event stream with a token", type: "text/event-stream", body: 'data: {"id_token":"t0ken"}\n\n' },
];
for (const { name, type, body } of bodies) {
  test(`the secrets in ${name} are hidden and the rest is unchanged`, () => {
    const shown = redactBody(Buffer.from(body), type).toString();
    assert.match(shown, /<redacted>/);
    assert.doesNotMatch(shown, /t0ken|c0de|r\\"x|client_secret=s/);
    for (const kept of ["grant_type=authorization_code", '"expires_in": 3600', '"token_type":"Bearer"'])
      if (body.includes(kept)) assert.ok(shown.includes(kept));
  });
}

test("bodies without secrets, and bytes that are not text, pass unchanged", () => {
  const bytes = Buffer.from([0, 255, 254, 10]);
  assert.equal(redactBody(bytes, "image/png"), bytes);
  assert.equal(redactBody(bytes, "application/json"), bytes);
  const json = Buffer.from('{"code":"not a credential in JSON","name":"ü"}');
  assert.equal(redactBody(json, "application/json").toString(), json.toString());
});

const argumentLists: [given: string[], shown: string[]][] = [
  [
    ["--api-key", "abc", "--verbose"],
    ["--api-key", "<redacted>", "--verbose"],
  ],
  [["--token=a;b c"], ["--token=<redacted>"]],
  [["DB_PASSWORD=abc"], ["DB_PASSWORD=<redacted>"]],
  [
    ["-H", "X-Api-Key: abc"],
    ["-H", "X-Api-Key: <redacted>"],
  ],
  [
    ["-u", "me:abc"],
    ["-u", "<redacted>"],
  ],
  [["postgres://u:p@ss@h/db?sslmode=on"], ["postgres://<redacted>@h/db?sslmode=<redacted>"]],
  [["Server=h;Password=abc;Timeout=3"], ["Server=h;Password=<redacted>;Timeout=3"]],
  [['{"apiKey":"abc","n":1}'], ['{"apiKey":"<redacted>","n":1}']],
  [["ghp_0123456789abcdef"], ["<redacted>"]],
  [
    ["--token", "${TOKEN}", "--api-key=${KEY}"],
    ["--token", "${TOKEN}", "--api-key=${KEY}"],
  ],
  [
    ["--token", "--verbose", "-y", "server", "--max-tokens", "5", "--key-file", "/k"],
    ["--token", "--verbose", "-y", "server", "--max-tokens", "5", "--key-file", "/k"],
  ],
];
for (const [given, shown] of argumentLists)
  test(`the arguments ${given.join(" ")} show as ${shown.join(" ")} [N20]`, () => {
    assert.deepEqual(redactArguments(given), shown);
    assert.deepEqual(redactArguments(shown), shown);
  });

const expressions = [
  ['request.headers["x-api-key"] == "abc"', 'request.headers["x-api-key"] == "<redacted>"'],
  [
    "'abc' == request.headers['x-api-key'] && jwt.sub == 'ada'",
    "'<redacted>' == request.headers['x-api-key'] && jwt.sub == 'ada'",
  ],
  ['request.headers["x-api-key"] in ["abc", "def"]', 'request.headers["x-api-key"] in ["<redacted>", "<redacted>"]'],
  ['request.headers["authorization"].startsWith("Bearer ")', 'request.headers["authorization"].startsWith("Bearer ")'],
  ['request.headers["x-team"] == "K3yOf7eam"', 'request.headers["x-team"] == "<redacted>"'],
  ['request.headers["x-team"] == "blue"', 'request.headers["x-team"] == "blue"'],
  ['request.headers["accept"] == "text2html"', 'request.headers["accept"] == "text2html"'],
  ['apiKey.key == "abc" || apiKey.user_id == "ada1815"', 'apiKey.key == "<redacted>" || apiKey.user_id == "ada1815"'],
  ['jwt.missing == 1 ? jwt.sub : "none"', 'jwt.missing == 1 ? jwt.sub : "none"'],
  ['"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln" + "x"', '"<redacted>" + "x"'],
] as const;
for (const [given, shown] of expressions)
  test(`the expression ${given} shows as ${shown} [N20]`, () => {
    const redaction = createRedaction();
    assert.equal(redaction.expression(given), shown);
    assert.equal(redaction.expression(shown), shown);
  });

test("an expression that sets a header is judged by the header's name", () => {
  const redaction = createRedaction();
  assert.equal(redaction.expression("'abc' + jwt.sub", { header: "X-Backend-Key" }), "<redacted>");
  assert.equal(redaction.expression("'K3yOf7eam' + jwt.sub", { header: "x-team" }), "'<redacted>' + jwt.sub");
  assert.equal(redaction.expression("'blue' + jwt.sub", { header: "x-team" }), "'blue' + jwt.sub");
});

test("members of JSON with sensitive names are hidden, nested, truncated and inside strings, and others are unchanged", () => {
  const found: string[] = [];
  const given =
    '{"a": {"api_key" : "k\\"1", "max_tokens":5}, "auth":{"user":"u","n":[1,"p"]}, "ok":true, "token":true}';
  const shown = '{"a": {"api_key" : "<redacted>", "max_tokens":5}, "auth":"<redacted>", "ok":true, "token":true}';
  assert.equal(redactJson(given, found), shown);
  assert.deepEqual(found, ['k"1', "user", "u", "n", "p"]);
  assert.equal(redactJson('{"secret":"cut o'), '{"secret":"<redacted>"');
  assert.equal(
    redactJson(JSON.stringify({ text: '{"token":"abc"}' })),
    JSON.stringify({ text: '{"token":"<redacted>"}' }),
  );
  assert.equal(redactJson('say "token" and leave'), 'say "token" and leave');
});

test("secrets of the configuration are hidden in any text, alone or as a part, and ordinary words are not [N20]", () => {
  const redaction = createRedaction();
  assert.equal(redaction.text("sk-abc-0123456789"), "sk-abc-0123456789");
  redaction.hideValues([
    "sk-abc-0123456789",
    "sk-abc-0123456789-more",
    "K3y5hort",
    "12345678",
    "gateway",
    'q"0123456789',
  ]);
  assert.equal(redaction.text("a=sk-abc-0123456789-more,sk-abc-0123456789;"), "a=<redacted>,<redacted>;");
  assert.equal(redaction.text("xsk-abc-0123456789x"), "x<redacted>x");
  assert.equal(redaction.text("is K3y5hort, not xK3y5hort"), "is <redacted>, not xK3y5hort");
  assert.equal(
    redaction.text('{"bytes":12345678} gateway_requests_total gateway'),
    '{"bytes":12345678} gateway_requests_total gateway',
  );
  assert.equal(redaction.text("12345678"), "<redacted>");
  assert.equal(redaction.text(JSON.stringify({ a: 'q"0123456789' })), '{"a":"<redacted>"}');
  assert.equal(redaction.text(`?a=${encodeURIComponent('q"0123456789')}`), "?a=<redacted>");
  assert.equal(redaction.query("a=K3y5hort&b=1"), "a=<redacted>&b=1");
  assert.deepEqual({ ...redaction.headers(["x-a", "sk-abc-0123456789"]) }, { "x-a": "<redacted>" });
});

test("each of ten thousand secrets is found in a long text", () => {
  const redaction = createRedaction();
  const secrets = Array.from({ length: 10_000 }, (_, i) => `key-${(i * 7919) % 10_000}-${i.toString(36)}-secret`);
  redaction.hideValues(secrets);
  const text = secrets.map((secret, i) => `${"padding ".repeat(i % 3)}${secret}`).join("|");
  assert.equal(redaction.text(text), secrets.map((_, i) => `${"padding ".repeat(i % 3)}<redacted>`).join("|"));
});

const LONG = 300_000;
const hostile = [
  '"',
  "'",
  '\\"',
  '"token":',
  '{"token":[',
  "token=",
  "a=",
  "?",
  "#",
  "&",
  "//",
  "a://",
  "://@",
  "r'",
  "[",
  "eyJ",
  "sk-",
  "-",
  "--token ",
  ":",
  "=\t",
  "<redacted>",
];
test("the time is linear in the input, whatever it consists of [N19]", () => {
  const redaction = createRedaction();
  redaction.hideValues(["aaaaaaaaaaab", "=============:"]);
  const began = process.cpuUsage();
  for (const piece of hostile) {
    const text = piece.repeat(LONG / piece.length);
    redactText(text);
    redactJson(text);
    redactQuery(text);
    redactUrl(`https://${text}`);
    redactArguments([text, text]);
    redaction.text(text);
    redaction.headers(["location", text]);
    redactBody(Buffer.from(text), "application/json");
    withoutSecrets(text, ["aaaaaaaa"]);
  }
  const { user, system } = process.cpuUsage(began);
  // 60 MB of text take a second; quadratic work on one of the inputs would take minutes.
  assert.ok((user + system) / 1e6 < 20, `${(user + system) / 1e6} s`);
});

test("a text is scrubbed if it is long enough to quote a credential", () => {
  const redaction = createRedaction();
  const values = [
    "Bearer 0123456789abcdefghijklmnop",
    "0123456789abcdefghijklmnop",
    "session=0123456789abcd; theme=dark",
    "session=0123456789abcd 0123456789abcdefghijklmnop0123456789",
    'Digest username="0123456789abcd"',
    "averylongscheme 0123456789abcdefghijklmnop0123456789",
    "a\tb 0123456789abcdefghijklmnop",
    "secret",
    "session=0123456789abcdefghijklmnop0123456789\u00a0abcdefghijklmn",
    "a=b; token=0123456789abc,0123456789abcdefghijklmnop0123456789",
    "Basic   0123456789abcdefghijklmnop ",
  ];
  for (const value of values)
    for (let from = 0; from < value.length; from++)
      for (let to = from + 1; to <= value.length; to++) {
        const text = value.slice(from, to);
        const pairs = ["accept", text, "authorization", value];
        if (!redaction.couldQuote(text.length, pairs, [])) assert.equal(redaction.scrub(text, pairs), text, value);
      }
  assert.equal(redaction.couldQuote(20, ["authorization", values[0] as string], []), false);
  assert.equal(redaction.couldQuote(26, ["authorization", values[0] as string], []), true);
  assert.equal(redaction.couldQuote(36, ["cookie", `session=${"c".repeat(64)}`], []), false);
  assert.equal(redaction.couldQuote(64, ["cookie", `session=${"c".repeat(64)}`], []), true);
  assert.equal(redaction.couldQuote(20, ["accept", "x"], ["0123456789"]), true);
  assert.equal(redaction.couldQuote(20, ["accept", "x"], ["short"]), false);
});

test("the credentials of a URL are collected as sent and decoded, so that their copies are hidden", () => {
  const found: string[] = [];
  const shown = redactUrl("https://us%65r:p%40ss@a.example/x?api%5Fkey=k%2B1&version=2&token=t2#access_token=f", found);
  assert.deepEqual(found, ["p%40ss", "p@ss", "k%2B1", "k+1", "t2", "t2"]);
  for (const secret of ["p%40ss", "k%2B1", "t2", "=f", "us%65r"]) assert.ok(!shown.includes(secret), shown);
});
