/**
 * Shows the documentation link, the keyboard shortcuts, and the version of the gateway.
 */
import { about } from "../data/about.ts";
import { visible } from "../parts/format.ts";
import { Popover } from "../parts/popover.tsx";
import { Icon } from "./icons.tsx";

const SHORTCUTS: readonly (readonly [string, string])[] = [
  ["Ctrl K", "search"],
  ["g o", "open a page (the letter is in the sidebar)"],
  ["/", "filter the page"],
  ["j k", "next and previous entry"],
  ["Esc", "close"],
];

export function HelpMenu() {
  const gateway = about.value.value;
  return (
    <Popover
      title="Help"
      label={
        <>
          <Icon name="help" />
          <span class="word">Help</span>
        </>
      }
    >
      <div class="stack">
        {gateway?.hasDocs ? (
          <a href="/docs/" target="_blank" rel="noreferrer">
            Documentation
          </a>
        ) : null}
        <dl class="attributes">
          {SHORTCUTS.map(([keys, action]) => [
            <dt key={keys}>
              <kbd>{keys}</kbd>
            </dt>,
            <dd key={action}>{action}</dd>,
          ])}
        </dl>
        {gateway ? (
          <p class="muted small">
            gateway {visible(gateway.version)} on {visible(gateway.host)}
            <br />
            Node {visible(gateway.node)}, {visible(gateway.platform)}
          </p>
        ) : null}
      </div>
    </Popover>
  );
}
