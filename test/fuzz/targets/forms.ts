/**
 * Queries and forms: a second decoder agrees, pairs keep the original text, and written fields are read back unchanged.
 */

import { newForm, readForm, readFormPairs } from "../../../src/base/form.ts";
import { InputError, peerInput } from "../../../src/base/peer-inputs.ts";
import { defineTarget, expectSame, refusalOf } from "../target.ts";

const INPUT = peerInput("client/login-form").upToItems(12);
/** The platform decodes characters beside an invalid escape as Latin-1, and the gateway rejects heads with such characters. */
const PIECES = ["&", "=", "a", "code", "%41", "%C3%A9", "%c3", "%zz", "%", "+", " ", "?", "#", ";", "%00"];

function decode(text: string): string {
  const bytes: number[] = [];
  const raw = Buffer.from(text.replaceAll("+", " "));
  for (let i = 0; i < raw.length; i++) {
    const hex = raw.toString("latin1", i + 1, i + 3);
    if (raw[i] === 0x25 && /^[0-9A-Fa-f]{2}$/.test(hex)) {
      bytes.push(Number.parseInt(hex, 16));
      i += 2;
    } else bytes.push(raw[i] as number);
  }
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Buffer.from(bytes));
}

export const forms = defineTarget<string>({
  name: "forms",
  seeds: ["a=1&b=%20&a=+", "?a&=b&&"],
  smokeCases: 3_000,
  generate: (random) => random.text(PIECES, 30),
  run(text) {
    if (Buffer.byteLength(text) !== text.length) return "no case";
    const refusal = refusalOf(() => readForm(INPUT, text), InputError);
    expectSame(refusal !== undefined, text.split("&").length > INPUT.maxItems, "refused");
    const other = refusalOf(() => readFormPairs(INPUT, text), InputError);
    expectSame(other?.message, refusal?.message, "pairs");
    if (refusal !== undefined) return "refused: items";
    const parts = (body: string): string[] => body.split("&").filter((part) => part !== "");
    const fields = (body: string): string[][] =>
      parts(body).map((part) => {
        const at = part.indexOf("=");
        return at < 0 ? [decode(part), ""] : [decode(part.slice(0, at)), decode(part.slice(at + 1))];
      });
    const read = [...readForm(INPUT, text)];
    expectSame(read, fields(text.replace(/^\?/, "")), "the fields");
    const pairs = readFormPairs(INPUT, text);
    expectSame(
      pairs.map(({ name, value }) => [name, value]),
      fields(text),
      "the pairs",
    );
    expectSame(
      pairs.map(({ raw }) => raw),
      parts(text),
      "the original text",
    );
    expectSame([...readForm(INPUT, newForm(read).toString())], read, "written and read again");
    return `${read.length} fields`;
  },
});
