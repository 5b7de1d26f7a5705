/**
 * XML of token services: the text of an element is what a regular expression finds.
 */
import { peerInput } from "../../../src/base/peer-inputs.ts";
import { readXmlElement } from "../../../src/identity/cloud/read-xml.ts";
import { defineTarget, expectSame } from "../target.ts";

const INPUT = peerInput("cloud-provider/xml-credentials");
const PIECES = [
  "<Key>",
  "</Key>",
  "<Key",
  "Key>",
  "</",
  "<",
  ">",
  "<Other>",
  "</Other>",
  "text",
  "&lt;",
  "\n",
  "<?xml?>",
];

export const xmlElements = defineTarget<string>({
  name: "xml-elements",
  seeds: ["<a><Key>secret</Key></a>"],
  smokeCases: 3_000,
  generate: (random) => random.text(PIECES, 14),
  run(text) {
    const found = readXmlElement(INPUT, text, "Key");
    expectSame(found, /<Key>([^<]*)<\/Key>/.exec(text)?.[1], "the element");
    return found === undefined ? "none" : `found ${found.length}`;
  },
});
