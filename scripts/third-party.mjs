/**
 * Writes the names, versions and license texts of the packages inside the bundles, from the bundler's list of inputs.
 * Runs at each build, so that the list is current. A package with an unknown license fails the build.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./steps.mjs";

const PACKAGE = /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//;
const LICENCE_FILE = /^(?:licen[cs]e|copying)(?:[.-].*)?$/i;
/** Licenses that require only their text and a copyright line. */
const ACCEPTED = new Set(["MIT", "ISC", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "BlueOak-1.0.0"]);

const MIT = `Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.`;

const BSD_3 = `Redistribution and use in source and binary forms, with or without modification, are permitted provided that the
following conditions are met:

1. Redistributions of source code must retain the above copyright notice, this list of conditions and the following
disclaimer.
2. Redistributions in binary form must reproduce the above copyright notice, this list of conditions and the following
disclaimer in the documentation and/or other materials provided with the distribution.
3. Neither the name of the copyright holder nor the names of its contributors may be used to endorse or promote products
derived from this software without specific prior written permission.

THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS" AND ANY EXPRESS OR IMPLIED WARRANTIES,
INCLUDING, BUT NOT LIMITED TO, THE IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE
DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT HOLDER OR CONTRIBUTORS BE LIABLE FOR ANY DIRECT, INDIRECT, INCIDENTAL,
SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES (INCLUDING, BUT NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR
SERVICES; LOSS OF USE, DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON ANY THEORY OF LIABILITY,
WHETHER IN CONTRACT, STRICT LIABILITY, OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE OF
THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.`;

/** The folders of packages that a bundle contains, from the inputs of esbuild's metafile. */
export function bundledPackages(...metafiles) {
  const folders = new Set();
  for (const { outputs } of metafiles)
    for (const { inputs } of Object.values(outputs))
      for (const [path, { bytesInOutput }] of Object.entries(inputs)) {
        const found = PACKAGE.exec(path);
        if (found && bytesInOutput > 0) folders.add(found[1]);
      }
  return [...folders].sort();
}

export function thirdPartyText(folders) {
  const parts = folders.map((folder) => packagePart(join(root, folder)));
  return `Third-party software in these programs\n\n${[...new Set(parts)].join("\n")}`;
}

export function packagePart(folder) {
  const { name, version, license, author } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const licences = String(license)
    .replace(/[()]/g, "")
    .split(/ (?:AND|OR) /);
  if (!licences.every((one) => ACCEPTED.has(one)))
    throw new Error(`${name}: the licence ${JSON.stringify(license)} is not known to be acceptable`);
  const holder = (typeof author === "object" ? author.name : author) ?? `the authors of ${name}`;
  const text = ownTexts(folder) || licences.map((one) => standardText(one, holder, name)).join("\n\n");
  return `${"=".repeat(80)}\n${name} ${version} (${license})\n\n${text.trim()}\n`;
}

function ownTexts(folder) {
  return readdirSync(folder)
    .filter((name) => LICENCE_FILE.test(name) || /^notice(?:\..*)?$/i.test(name))
    .map((name) => readFileSync(join(folder, name), "utf8"))
    .join("\n");
}

/** Some packages name their license without including its text. */
function standardText(license, holder, name) {
  if (license === "Apache-2.0")
    return "Licensed under the Apache License, Version 2.0. Its text is in the file LICENSE of this package.";
  if (license === "MIT") return `Copyright (c) ${holder}\n\n${MIT}`;
  if (license === "BSD-3-Clause") return `Copyright (c) ${holder}\n\n${BSD_3}`;
  throw new Error(`${name}: has no licence text, and there is no standard one for ${license}`);
}
