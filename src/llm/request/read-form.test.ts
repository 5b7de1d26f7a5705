import assert from "node:assert/strict";
import { test } from "node:test";
import { estimateTextTokens } from "../usage/estimate-tokens.ts";
import { scanForm } from "./read-request.ts";

const TYPE = "multipart/form-data; boundary=XX";
const field = (name: string, value: string): string =>
  `--XX\r\ncontent-disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`;
const file = `--XX\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\ncontent-type: audio/wav\r\n\r\n\0\xff--X\r\n`;
const form = (...parts: string[]): Buffer => Buffer.from(`${parts.join("")}--XX--\r\n`, "latin1");

test("the model of a form is found with its offsets", () => {
  const bytes = form(file, field("model", "whisper-1"), field("stream", "true"));
  const result = scanForm(bytes, TYPE);
  assert.ok(result.ok);
  const { model, modelSpan, stream, isForm } = result.scan;
  assert.deepEqual([model, stream, isForm], ["whisper-1", true, true]);
  assert.equal(bytes.toString("latin1", modelSpan?.start, modelSpan?.end), "whisper-1");
});

test("a quoted boundary and a form without a model are read", () => {
  const result = scanForm(form(file), 'multipart/form-data; charset=utf-8; boundary="XX"');
  assert.equal(result.ok && result.scan.model, undefined);
});

const part = (head: string, value = "a"): string => `--XX\r\n${head}\r\n\r\n${value}\r\n`;
const MODEL = 'content-disposition: form-data; name="model"';

const read: [name: string, bytes: Buffer, model: string | undefined][] = [
  ["a name without quotes", form(part("Content-Disposition: form-data;name=model")), "a"],
  [
    "a type and an encoding",
    form(part(`${MODEL}\r\nContent-Type: text/plain; charset=utf-8\r\ncontent-transfer-encoding: 8bit`)),
    "a",
  ],
  [
    "a file name in two forms",
    form(file, part('content-disposition: form-data; name="f"; filename="?.png"; filename*=UTF-8\'\'%e2%82%ac.png')),
    undefined,
  ],
  [
    "a file name with a backslash",
    form(part('content-disposition: form-data; name="f"; filename="C:\\a.png"'), field("model", "m")),
    "m",
  ],
  [
    "escaped quotes in a file name",
    form(part('content-disposition: form-data; name="f"; filename="a \\\\ \\"b\\".png"'), field("model", "m")),
    "m",
  ],
  ["no line end at its end", form(field("model", "m")).subarray(0, -2), "m"],
];
for (const [name, bytes, model] of read)
  test(`a form with ${name} is read`, () => {
    const result = scanForm(bytes, TYPE);
    assert.ok(result.ok, result.ok ? "" : result.reason);
    assert.equal(result.scan.model, model);
  });

const refused: [name: string, bytes: Buffer, type?: string][] = [
  ["two models", form(field("model", "a"), field("model", "b"))],
  ["a model of two lines", form(field("model", "a\r\nb"))],
  ["a model with dots as a path", form(field("model", "../x"))],
  ["an empty model", form(field("model", ""))],
  ["no end", Buffer.from(field("model", "a"))],
  ["no parts", Buffer.from("hello")],
  ["no boundary", form(field("model", "a")), "multipart/form-data"],
  ["a head without end", Buffer.from(`--XX\r\n${"x".repeat(9000)}\r\n--XX--`)],
  ["a model that is a file", form(part(`${MODEL}; filename=""`))],
  ["a model with a file name first", form(part('content-disposition: form-data; filename="a"; name="model"'))],
  ["two streams", form(field("stream", "true"), field("stream", "false"))],
  ["a charset of its own", form(field("_charset_", "utf-16"), field("model", "a"))],
  ["a model in base64", form(part(`${MODEL}\r\ncontent-transfer-encoding: base64`))],
  ["a model in another charset", form(part(`${MODEL}\r\ncontent-type: text/plain; charset=utf-16`))],
  ["an encoded name", form(field("model", "a"), part("content-disposition: form-data; name*=utf-8''model", "b"))],
  ["an escaped name", form(field("model", "a"), part('content-disposition: form-data; name="mo\\del"', "b"))],
  ["an escaped quote in a file name", form(part('content-disposition: form-data; filename="\\"; name="model"'))],
  [
    "a further parameter in a file name",
    form(part('content-disposition: form-data; name="f"; filename="\\"; name=model; x=\\""')),
  ],
  ...['; filename="a"', '; filename="\\"b"', '; name="a"', "; filename*=a"].map((one): [string, Buffer] => [
    `many times ${one}`,
    form(part(`content-disposition: form-data${one.repeat(250)}!`)),
  ]),
  ["a name twice", form(part('content-disposition: form-data; name="x"; name="model"'))],
  ["a space before the semicolon", form(part('content-disposition: form-data ; name="model"'))],
  ["a space before the colon", form(part('content-disposition : form-data; name="model"'))],
  ["two dispositions", form(part(`content-disposition: form-data; name="x"\r\n${MODEL}`))],
  ["a continued line", form(part('content-disposition: form-data;\r\n name="model"'))],
  ["an attachment", form(part('content-disposition: attachment; name="model"'))],
  ["no disposition", form(part("content-type: text/plain"))],
  ["a part without a head", form("--XX\r\n\r\nx\r\n", field("model", "a"))],
  ["lines that end with LF", form(field("model", "a"), `--XX\n${MODEL}\n\nb\n`)],
  ["LF before a boundary", form(`--XX\r\ncontent-disposition: form-data; name="x"\r\n\r\ny\n`, field("model", "a"))],
  ["a head with LF", form(part(`content-disposition: form-data; name="x"\n${MODEL}`))],
  ["a preamble", Buffer.concat([Buffer.from("x\r\n"), form(field("model", "a"))])],
  ["a part after its end", Buffer.concat([form(field("model", "a")), form(field("model", "b"))])],
  ["a boundary that goes on", form(field("model", "a"), `--XXY\r\n${MODEL}\r\n\r\nb\r\n`)],
  ["a boundary and spaces", form(`--XX  \r\n${MODEL}\r\n\r\nb\r\n`)],
  ["two boundaries", form(field("model", "a")), "multipart/form-data; boundary=YY; boundary=XX"],
  ["a boundary inside a text", form(field("model", "a")), 'multipart/form-data; x="; boundary=YY"; boundary=XX'],
  ["too many parts", form(...Array.from({ length: 300 }, () => field("a", "b")))],
];
for (const [name, bytes, type = TYPE] of refused) {
  test(`a form with ${name} is rejected`, () => assert.equal(scanForm(bytes, type).ok, false));
}

test("the fields of a form are estimated like text, and files are not", () => {
  const prompt = "Replace the sky with a sunset over the sea. ".repeat(250);
  const result = scanForm(form(file, field("model", "m"), field("prompt", prompt)), TYPE);
  assert.ok(result.ok);
  const { bytes, tokens } = result.scan.formText ?? { bytes: 0, tokens: 0 };
  assert.equal(bytes, prompt.length + 1);
  assert.ok(Math.abs(tokens - estimateTextTokens(Buffer.from(prompt))) < 2 && tokens > 2_000, String(tokens));
});
