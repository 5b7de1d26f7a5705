import assert from "node:assert/strict";
import { test } from "node:test";
import { scanForm } from "./scan-form.ts";

const TYPE = "multipart/form-data; boundary=XX";
const field = (name: string, value: string): string =>
  `--XX\r\ncontent-disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`;
const file = `--XX\r\nContent-Disposition: form-data; name="model"; filename="a.wav"\r\ncontent-type: audio/wav\r\n\r\n\0\xff--X\r\n`;
const form = (...parts: string[]): Buffer => Buffer.from(`${parts.join("")}--XX--\r\n`, "latin1");

test("the model of a form is found with its place", () => {
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

const refused: [name: string, bytes: Buffer, type?: string][] = [
  ["two models", form(field("model", "a"), field("model", "b"))],
  ["a model of two lines", form(field("model", "a\r\nb"))],
  ["a model with dots as a path", form(field("model", "../x"))],
  ["an empty model", form(field("model", ""))],
  ["no end", Buffer.from(field("model", "a"))],
  ["no parts", Buffer.from("hello")],
  ["no boundary", form(field("model", "a")), "multipart/form-data"],
  ["a head without end", Buffer.from(`--XX\r\n${"x".repeat(9000)}\r\n--XX--`)],
  ["too many parts", form(...Array.from({ length: 300 }, () => field("a", "b")))],
];
for (const [name, bytes, type = TYPE] of refused) {
  test(`a form with ${name} is refused`, () => assert.equal(scanForm(bytes, type).ok, false));
}
