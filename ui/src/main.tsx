/**
 * Starts the web UI.
 */
import { render } from "preact";
import { App } from "./frame/app.tsx";
import { escapeNodes } from "./frame/escaped-nodes.ts";
import { startKeys } from "./frame/keys.ts";
import { startRouter } from "./frame/router.ts";

escapeNodes();
startRouter();
startKeys();
const root = document.getElementById("app");
if (root) render(<App />, root);
