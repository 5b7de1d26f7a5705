/** To come. */
export function Llm() {
  return <h1>llm</h1>;
}
