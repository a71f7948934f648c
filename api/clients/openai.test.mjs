import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from 'openai';
import { faults, patience, pixel, state, until } from './support.mjs';

const client = new OpenAI(); // As it comes: the address and the key are in the environment.
const hello = [{ role: 'user', content: 'Say something.' }];

test('lists models, and shows one', patience, async () => {
  const seen = [];
  for await (const model of client.models.list()) seen.push(model);
  assert.deepEqual(seen.map((m) => m.id).sort(), ['agent', 'chat', 'embed', 'faulty', 'rank', 'slow', 'vision']);
  for (const model of seen) assert.equal(model.object, 'model');
  const one = await client.models.retrieve('chat');
  assert.equal(one.id, 'chat');
  await assert.rejects(client.models.retrieve('nobody'), OpenAI.NotFoundError);
});

test('chats', patience, async () => {
  const { data, response, request_id } = await client.chat.completions.create({ model: 'chat', messages: hello, max_tokens: 8 }).withResponse();
  assert.equal(data.object, 'chat.completion');
  assert.equal(data.model, 'chat');
  assert.equal(data.choices.length, 1);
  assert.equal(data.choices[0].message.role, 'assistant');
  assert.ok(data.choices[0].message.content.length > 0);
  assert.equal(data.choices[0].finish_reason, 'length');
  assert.equal(data.usage.completion_tokens, 8);
  assert.equal(data.usage.total_tokens, data.usage.prompt_tokens + 8);
  assert.ok(request_id, 'there is an x-request-id');
  assert.equal(response.headers.get('x-relay-served-model'), 'chat');
  assert.equal(response.headers.get('x-relay-path'), 'direct');
});

test('streams', patience, async () => {
  const whole = await client.chat.completions.create({ model: 'chat', messages: hello, max_tokens: 12 });
  const stream = await client.chat.completions.create({ model: 'chat', messages: hello, max_tokens: 12, stream: true });
  let text = '', finish;
  for await (const chunk of stream) {
    assert.equal(chunk.object, 'chat.completion.chunk');
    assert.ok(!chunk.usage, 'usage was not asked for');
    assert.ok(!('timings' in chunk) && !('prompt_progress' in chunk));
    assert.equal(chunk.choices.length, 1);
    text += chunk.choices[0].delta.content ?? '';
    finish = chunk.choices[0].finish_reason ?? finish;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(finish, 'length');
});

test('streams with usage', patience, async () => {
  const stream = await client.chat.completions.create({ model: 'chat', messages: hello, max_tokens: 12, stream: true, stream_options: { include_usage: true } });
  let last;
  for await (const chunk of stream) {
    assert.ok('usage' in chunk, 'every chunk has the field');
    last = chunk;
  }
  assert.deepEqual(last.choices, []);
  assert.equal(last.usage.completion_tokens, 12);
});

test('streams by its helper', patience, async () => {
  const stream = client.chat.completions.stream({ model: 'chat', messages: hello, max_tokens: 12, stream_options: { include_usage: true } });
  const pieces = [];
  stream.on('content', (piece) => pieces.push(piece));
  const whole = await stream.finalChatCompletion();
  assert.equal(whole.choices[0].message.content, pieces.join(''));
  assert.equal(whole.usage.completion_tokens, 12);
});

test('gives several answers, probabilities, and stops', patience, async () => {
  const several = await client.chat.completions.create({ model: 'chat', messages: hello, max_tokens: 4, n: 3, temperature: 0.7, seed: 7 });
  assert.deepEqual(several.choices.map((c) => c.index), [0, 1, 2]);
  assert.equal(several.usage.completion_tokens, 12);
  const likely = await client.chat.completions.create({ model: 'chat', messages: hello, max_tokens: 4, logprobs: true, top_logprobs: 2 });
  assert.equal(likely.choices[0].logprobs.content.length, 4);
  const text = likely.choices[0].message.content;
  const word = text.trim().split(/\s+/)[0];
  const stopped = await client.chat.completions.create({ model: 'chat', messages: hello, max_tokens: 4, stop: [word] });
  assert.equal(stopped.choices[0].finish_reason, 'stop');
  assert.ok(!stopped.choices[0].message.content.includes(word));
});

test('leaves in the middle, and the engine is free', patience, async () => {
  const abort = new AbortController();
  const stream = await client.chat.completions.create({ model: 'slow', messages: hello, max_tokens: 2000, stream: true }, { signal: abort.signal });
  let seen = 0;
  for await (const chunk of stream) if (chunk.choices[0]?.delta.content && ++seen === 3) abort.abort();
  assert.ok(seen >= 3);
  const left = Date.now();
  await until('the only slot is free', async () => (await state('slow')).active === 0, 2000);
  const next = await client.chat.completions.create({ model: 'slow', messages: hello, max_tokens: 2 });
  assert.equal(next.usage.completion_tokens, 2);
  assert.ok(Date.now() - left < 5000);
});

const weather = {
  type: 'function',
  function: {
    name: 'weather', description: 'The weather of a place',
    parameters: { type: 'object', properties: { place: { type: 'string' } }, required: ['place'], additionalProperties: false },
  },
};

test('calls tools, several at a time', patience, async () => {
  const ask = { model: 'chat', tools: [weather], messages: [{ role: 'user', content: 'What is the weather in Rome and Oslo?' }] };
  const whole = await client.chat.completions.create(ask);
  const calls = whole.choices[0].message.tool_calls;
  assert.equal(whole.choices[0].finish_reason, 'tool_calls');
  assert.equal(whole.choices[0].message.content, null);
  assert.deepEqual(calls.map((c) => [c.type, c.function.name, JSON.parse(c.function.arguments).place]), [['function', 'weather', 'Rome'], ['function', 'weather', 'Oslo']]);
  assert.notEqual(calls[0].id, calls[1].id);

  const stream = await client.chat.completions.create({ ...ask, stream: true });
  const streamed = [];
  for await (const chunk of stream) {
    for (const d of chunk.choices[0].delta.tool_calls ?? []) {
      assert.equal(typeof d.index, 'number');
      const call = (streamed[d.index] ??= { id: d.id, name: d.function.name, text: '' });
      if (d.id) assert.equal(d.id, call.id, 'the index of a call is always the same');
      call.text += d.function.arguments ?? '';
    }
  }
  assert.deepEqual(streamed.map((c) => [c.name, JSON.parse(c.text).place]), [['weather', 'Rome'], ['weather', 'Oslo']]);

  const answered = await client.chat.completions.create({
    ...ask,
    messages: [...ask.messages, whole.choices[0].message, ...calls.map((c) => ({ role: 'tool', tool_call_id: c.id, content: 'sunny' }))],
  });
  assert.equal(answered.choices[0].message.content, 'It is sunny in both.');
});

test('calls one tool where one is asked for', patience, async () => {
  const ask = { model: 'chat', tools: [weather], parallel_tool_calls: false, messages: [{ role: 'user', content: 'What is the weather in Rome and Oslo?' }] };
  const one = await client.chat.completions.create(ask);
  assert.equal(one.choices[0].message.tool_calls.length, 1);
  assert.deepEqual((await client.chat.completions.stream(ask).finalChatCompletion()).choices[0].message.tool_calls.map((c) => JSON.parse(c.function.arguments)), [{ place: 'Rome' }]);
});

test('runs tools by its helper', patience, async () => {
  const places = [];
  const runner = client.chat.completions.runTools({
    model: 'chat', messages: [{ role: 'user', content: 'What is the weather in Rome and Oslo?' }],
    tools: [{ type: 'function', function: { ...weather.function, parse: JSON.parse, function: ({ place }) => { places.push(place); return 'sunny'; } } }],
  });
  assert.equal(await runner.finalContent(), 'It is sunny in both.');
  assert.deepEqual(places, ['Rome', 'Oslo']);
});

test('heeds tool_choice', patience, async () => {
  const ask = { model: 'chat', tools: [weather], messages: hello };
  const other = { type: 'function', function: { name: 'clock', parameters: { type: 'object', properties: {} } } };
  for (const name of ['weather', 'clock']) {
    const forced = await client.chat.completions.create({ ...ask, tools: [weather, other], tool_choice: { type: 'function', function: { name } } });
    assert.equal(forced.choices[0].message.tool_calls[0].function.name, name);
  }
  const required = await client.chat.completions.create({ ...ask, tool_choice: 'required' });
  assert.equal(required.choices[0].message.tool_calls.length, 1);
  const none = await client.chat.completions.create({ ...ask, tool_choice: 'none', max_tokens: 4 });
  assert.ok(!none.choices[0].message.tool_calls?.length);
});

const place = { type: 'object', properties: { city: { type: 'string' }, people: { type: 'integer' } }, required: ['city', 'people'], additionalProperties: false };

test('answers by a JSON schema', patience, async () => {
  const parsed = await client.chat.completions.parse({
    model: 'chat', messages: hello, response_format: { type: 'json_schema', json_schema: { name: 'place', strict: true, schema: place } },
  });
  const found = parsed.choices[0].message.parsed;
  assert.equal(typeof found.city, 'string');
  assert.ok(Number.isInteger(found.people));
  const object = await client.chat.completions.create({ model: 'chat', messages: hello, response_format: { type: 'json_object' } });
  assert.equal(typeof JSON.parse(object.choices[0].message.content), 'object');
});

test('completes a prompt', patience, async () => {
  const done = await client.completions.create({ model: 'chat', prompt: 'Once upon a time', max_tokens: 6 });
  assert.equal(done.object, 'text_completion');
  assert.equal(done.usage.completion_tokens, 6);
  let text = '';
  for await (const chunk of await client.completions.create({ model: 'chat', prompt: 'Once upon a time', max_tokens: 6, stream: true })) text += chunk.choices[0]?.text ?? '';
  assert.equal(text, done.choices[0].text);
});

test('embeds', patience, async () => {
  // As it comes it asks for base64 and makes numbers of it.
  const packed = await client.embeddings.create({ model: 'embed', input: ['one', 'two'] });
  const plain = await client.embeddings.create({ model: 'embed', input: ['one', 'two'], encoding_format: 'float' });
  assert.deepEqual(packed.data.map((d) => d.index), [0, 1]);
  assert.ok(packed.data[0].embedding.length > 8);
  packed.data.forEach((d, i) => d.embedding.forEach((v, j) => assert.ok(Math.abs(v - plain.data[i].embedding[j]) < 1e-6)));
  assert.notDeepEqual(plain.data[0].embedding, plain.data[1].embedding);
  assert.ok(plain.usage.prompt_tokens > 0);
  const short = await client.embeddings.create({ model: 'embed', input: 'one', dimensions: 4 });
  assert.equal(short.data[0].embedding.length, 4);
  await assert.rejects(client.embeddings.create({ model: 'chat', input: 'one' }), (e) => e instanceof OpenAI.BadRequestError && e.param === 'model');
});

test('ranks, and counts tokens', patience, async () => {
  const ranked = await client.post('/rerank', { body: { model: 'rank', query: 'one', documents: ['two', 'one', 'three'], top_n: 2 } });
  assert.equal(ranked.results.length, 2);
  assert.ok(ranked.results[0].relevance_score >= ranked.results[1].relevance_score);
  const { tokens } = await client.post('/tokenize', { body: { model: 'chat', content: 'Say something.' } });
  assert.ok(tokens.length > 0);
  assert.equal((await client.post('/detokenize', { body: { model: 'chat', tokens } })).content, 'Say something.');
});

test('responds', patience, async () => {
  const whole = await client.responses.create({ model: 'chat', input: 'Say something.', max_output_tokens: 16 });
  assert.equal(whole.object, 'response');
  assert.equal(whole.status, 'incomplete');
  assert.equal(whole.incomplete_details.reason, 'max_output_tokens');
  assert.ok(whole.output_text.length > 0);
  assert.equal(whole.usage.output_tokens, 16);

  const counted = await client.responses.inputTokens.count({ model: 'chat', input: 'Say something.' });
  assert.equal(counted.input_tokens, whole.usage.input_tokens);

  let number = -1, types = [];
  for await (const event of await client.responses.create({ model: 'chat', input: 'Say something.', max_output_tokens: 16, stream: true })) {
    assert.equal(event.sequence_number, ++number);
    if (types.at(-1) !== event.type) types.push(event.type);
  }
  assert.deepEqual(types, [
    'response.created', 'response.in_progress', 'response.output_item.added', 'response.content_part.added', 'response.output_text.delta',
    'response.output_text.done', 'response.content_part.done', 'response.output_item.done', 'response.incomplete',
  ]);

  const stream = client.responses.stream({ model: 'chat', input: 'Say something.', max_output_tokens: 16 });
  let text = '';
  stream.on('response.output_text.delta', (e) => { text += e.delta; });
  const final = await stream.finalResponse();
  assert.equal(final.output_text, whole.output_text);
  assert.equal(text, whole.output_text);
});

test('responds with tools, and by a schema', patience, async () => {
  const tools = [{ type: 'function', name: 'weather', description: weather.function.description, parameters: weather.function.parameters, strict: true }];
  const input = [{ role: 'user', content: 'What is the weather in Rome and Oslo?' }];
  for (const answer of [await client.responses.create({ model: 'chat', tools, input }), await client.responses.stream({ model: 'chat', tools, input }).finalResponse()]) {
    assert.equal(answer.status, 'completed');
    const calls = answer.output.filter((o) => o.type === 'function_call');
    assert.deepEqual(calls.map((c) => [c.name, JSON.parse(c.arguments).place]), [['weather', 'Rome'], ['weather', 'Oslo']]);
    const next = await client.responses.create({
      model: 'chat', tools,
      input: [...input, ...answer.output, ...calls.map((c) => ({ type: 'function_call_output', call_id: c.call_id, output: 'sunny' }))],
    });
    assert.equal(next.output_text, 'It is sunny in both.');
  }
  const parsed = await client.responses.parse({ model: 'chat', input: 'A place.', text: { format: { type: 'json_schema', name: 'place', strict: true, schema: place } } });
  assert.ok(Number.isInteger(parsed.output_parsed.people));
  await assert.rejects(client.responses.create({ model: 'chat', input: 'x', previous_response_id: 'resp_1' }), (e) => e instanceof OpenAI.BadRequestError && e.param === 'previous_response_id');
  await assert.rejects(client.responses.create({ model: 'chat', input: 'x', store: true }), (e) => e instanceof OpenAI.BadRequestError && e.param === 'store');
});

test('reads images that it is given, and fetches none', patience, async () => {
  const ask = (model, url) => client.chat.completions.create({
    model, max_tokens: 4, messages: [{ role: 'user', content: [{ type: 'text', text: 'What is this?' }, { type: 'image_url', image_url: { url } }] }],
  });
  const seen = await ask('vision', `data:image/png;base64,${pixel}`);
  assert.equal(seen.usage.completion_tokens, 4);
  await assert.rejects(ask('vision', 'http://127.0.0.1:9/x.png'), (e) => e instanceof OpenAI.BadRequestError && /fetch|data:/.test(e.message));
  await assert.rejects(ask('chat', `data:image/png;base64,${pixel}`), OpenAI.BadRequestError);
});

test('is refused by name', patience, async () => {
  const refused = async (body, kind, check) => assert.rejects(client.chat.completions.create({ model: 'chat', messages: hello, ...body }), (e) => {
    assert.ok(e instanceof kind, `${e.constructor.name}: ${e.message}`);
    check?.(e);
    return true;
  });
  await refused({ model: 'nobody' }, OpenAI.NotFoundError, (e) => assert.equal(e.code, 'model_not_found'));
  await refused({ audio: { format: 'wav', voice: 'alloy' } }, OpenAI.BadRequestError, (e) => assert.equal(e.param, 'audio'));
  await refused({ no_such_field: 1 }, OpenAI.BadRequestError, (e) => assert.equal(e.param, 'no_such_field'));
  await refused({ messages: [{ role: 'user', content: 'word '.repeat(6000) }] }, OpenAI.BadRequestError, (e) => {
    assert.equal(e.code, 'context_length_exceeded');
    assert.match(e.message, /maximum context length is 4096 tokens.*resulted in \d+ tokens/);
  });
  const huge = { role: 'user', content: 'x'.repeat(70 << 20) };
  await assert.rejects(client.chat.completions.create({ model: 'chat', messages: [huge] }, { maxRetries: 0 }), (e) => e.status === 413);
});

test('needs a key that may', patience, async () => {
  const by = (apiKey) => new OpenAI({ apiKey, maxRetries: 0 });
  await assert.rejects(by('rk-made-up').models.list(), OpenAI.AuthenticationError);
  await assert.rejects(by('rk-made-up').chat.completions.create({ model: 'chat', messages: hello }), (e) => e instanceof OpenAI.AuthenticationError && e.code === 'invalid_api_key');
  const embeds = by(process.env.RELAY_TEST_EMBED_KEY);
  assert.deepEqual((await embeds.models.list()).data.map((m) => m.id), ['embed']);
  await assert.rejects(embeds.chat.completions.create({ model: 'chat', messages: hello }), OpenAI.PermissionDeniedError);
});

test('keeps to the limits of a key', patience, async () => {
  const rare = new OpenAI({ apiKey: process.env.RELAY_TEST_RARE_KEY, maxRetries: 0 });
  const ask = { model: 'chat', messages: hello, max_tokens: 2 };
  const { response } = await rare.chat.completions.create(ask).withResponse();
  assert.equal(response.headers.get('x-ratelimit-limit-requests'), '1');
  assert.equal(response.headers.get('x-ratelimit-remaining-requests'), '0');
  await assert.rejects(rare.chat.completions.create(ask), (e) => e instanceof OpenAI.RateLimitError && Number(e.headers.get('retry-after')) > 0);

  // One request at a time: the second is told when to come again, and comes.
  let told;
  const refused = new Promise((done) => { told = done; });
  const single = new OpenAI({
    apiKey: process.env.RELAY_TEST_SINGLE_KEY,
    fetch: async (...ask) => {
      const answer = await fetch(...ask);
      if (answer.status === 429) told(answer.headers.get('retry-after'));
      return answer;
    },
  });
  const long = await single.chat.completions.create({ model: 'slow', messages: hello, max_tokens: 2000, stream: true });
  const waiting = single.chat.completions.create(ask);
  assert.ok(Number(await refused) > 0);
  long.controller.abort();
  assert.equal((await waiting).usage.completion_tokens, 2);
});

test('tries again where that helps', patience, async () => {
  // A peer waits by itself for an engine that loads, unless it is told not to.
  const impatient = new OpenAI({ defaultHeaders: { prefer: 'wait=0' } });
  const ask = { model: 'faulty', messages: hello, max_tokens: 2 };
  await client.chat.completions.create(ask);
  await faults('faulty', 'refuse*1');
  await assert.rejects(impatient.chat.completions.create(ask, { maxRetries: 0 }), (e) => e instanceof OpenAI.InternalServerError && e.status === 503 && Number(e.headers.get('retry-after')) > 0);
  await faults('faulty', 'refuse*1');
  assert.equal((await impatient.chat.completions.create(ask)).usage.completion_tokens, 2);

  // A stream outlives its engine, but for what is in that engine only.
  const cut = async (more) => {
    await faults('faulty', 'die:3*1');
    let tokens;
    for await (const chunk of await client.chat.completions.create({ model: 'faulty', messages: hello, max_tokens: 20, stream: true, stream_options: { include_usage: true }, ...more })) {
      tokens = chunk.usage?.completion_tokens ?? tokens;
    }
    return tokens;
  };
  assert.equal(await cut({}), 20);
  await assert.rejects(cut({ response_format: { type: 'json_object' } }), (e) => e instanceof OpenAI.APIError && e.code === 'cannot_continue');
});
